"""Sections about what single methods hand over: masks of units, importance of weights, and weights
of source images.

Any method may have the section on masks: it hands over `mask.<site>`, the probability that a
training domain keeps a unit (`[domains, units]`), and logs `kept` and `iou` of each site.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from statistics import fmean
from typing import Any

import numpy as np

from unseen.reports.figures.charts import (
    Axis,
    ChartRow,
    Line,
    Mark,
    axis_around,
    curve_chart,
    row_chart,
    thinned,
    uneven_axis,
)
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import circle_grid, heat_map, number_texts, unit_strips
from unseen.reports.figures.svg import Drawing, Key
from unseen.reports.page.parts import Fold, PageTable, Part, Section, first_and_folded, number
from unseen.reports.page.studies import Run, Study
from unseen.reports.page.training import curves_by_column, run_curves
from unseen.reports.tables import MethodKey
from unseen.results.folder import safe_name
from unseen.results.result import VIEWS

_SITE = "mask."
LARGEST = 16  # rows and columns of a grid; of a larger layer the first ones are shown
Arrays = Mapping[str, np.ndarray]

_OF_ALL = {
    "initial": "initial weights",
    "summed": "importance, summed",
    "normalised": "summed, normalised",
    "mask": "mask of phase 2",
    "second_initial": "phase 2, initial weights",
    "second_final": "phase 2, final weights",
}
_OF_DOMAIN = {
    "final": "final weights",
    "importance": "importance, normalised",
    "mask": "binary mask",
}


def masks_section(study: Study) -> Section:
    study = study.drawn
    masked = [run for run in study.runs if site_statistics(run)]
    parts: list[Part] = []
    for row in dict.fromkeys(run.row for run in masked):
        own = [run for run in masked if run.row == row]
        figures = [figure for figure in _figures(study, row, own) if figure.panels]
        title = f"Overlap of masks, and kept share over training: {study.row_name(row)}"
        parts += first_and_folded(title, figures)
    return Section(
        "masks",
        "Domain-specific masks",
        "Every training domain has its own mask over the units at a site. Units kept by all "
        "domains are shared; units kept by one are specific to that domain.",
        (*parts, *_overlap_weights(masked)),
    )


def site_statistics(run: Run) -> dict[str, Mapping[str, Any]]:
    return {
        site: values
        for site, values in run.statistics.items()
        if isinstance(values, Mapping) and {"kept", "iou"} <= set(values)
    }


def _figures(study: Study, row: MethodKey, runs: list[Run]) -> Iterator[Figure]:
    """Yields which units each domain keeps, how much domains share, and both over training."""
    several = len(study.seeds) > 1
    which = f"Runs of seed {study.seeds[0]}." if several else ""
    name, method = safe_name("_".join(row)), study.row_name(row)
    first = study.first_runs(runs)
    strips = [
        unit_strips(
            f"{run.column} unseen, {array[len(_SITE) :]}", run.training_domains, probs > 0.5
        )
        for run in first
        for array, probs in run.arrays().items()
        if array.startswith(_SITE)
    ]
    yield Figure(
        f"masks_strips_{name}",
        f"Shared and specific units: {method}",
        "Every unit of a site, sorted by the domains that keep it (probability above one half); "
        f"white where a domain drops it. {which}",
        tuple(strips),
        (Key("all domains", 1), Key("some domains", 5), Key("one domain", 2)),
    )
    mean = ", mean over seeds" if several else ""
    yield Figure(
        f"masks_iou_{name}",
        f"Overlap of masks: {method}",
        f"Intersection over union of two domains' masks, at the chosen step{mean}. Below the "
        "diagonal: soft (probabilities). Above: hard (units above one half).",
        tuple(_overlaps(study, runs)),
    )
    yield Figure(
        f"masks_kept_{name}",
        f"Kept share over training: {method}",
        "Share of a site's units that a domain keeps. Solid: mean probability (soft); dashed: "
        f"share above one half (hard). {which}",
        tuple(_kept(study, run, site) for run in first for site in site_statistics(run)),
        tuple(Key(domain, study.domain_color(domain), "line") for domain in study.domains),
    )


def _overlaps(study: Study, runs: list[Run]) -> Iterator[Drawing]:
    for column in study.columns:
        own = [run for run in runs if run.column == column]
        sites = [site_statistics(run) for run in own]
        for site in sites[0] if sites else ():
            domains = own[0].training_domains
            values = _overlap(domains, [each[site]["iou"] for each in sites if site in each])
            title, texts = f"{column} unseen, {site}", number_texts(values, ".2f")
            yield heat_map(title, domains, domains, values, texts)


def _overlap(domains: Sequence[str], pairs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    values = np.full((len(domains), len(domains)), np.nan)
    for (i, a), (j, b) in combinations(enumerate(domains), 2):
        for place, kind in (((j, i), "soft"), ((i, j), "hard")):
            known = [each[f"{a}|{b}"][kind] for each in pairs if f"{a}|{b}" in each]
            values[place] = fmean(known) if known else np.nan
    return values


def _kept(study: Study, run: Run, site: str) -> Drawing:
    logged = [
        (record["step"], record["statistics"][site]["kept"])
        for record in run.evaluations
        if site in (record.get("statistics") or {})
    ]
    lines = [
        Line(
            f"{domain}, {kind}",
            study.domain_color(domain),
            thinned([(step, kept[domain][kind]) for step, kept in logged]),
            dashed=kind == "hard",
        )
        for domain in run.training_domains
        for kind in ("soft", "hard")
    ]
    x = Axis(0, max((step for step, _ in logged), default=1), "step")
    y = axis_around(value for line in lines for _, value in line.points)
    return curve_chart(f"{run.column} unseen, {site}", lines, x, y, dots=True)


def _overlap_weights(runs: list[Run]) -> list[Figure]:
    """Draws IoU and accuracy over the overlap weight, where runs differ in it."""
    by_weight: dict[float, list[Run]] = {}
    for run in runs:
        weight = run.settings["method"].get("overlap_weight")
        if weight is not None and run.result is not None:
            by_weight.setdefault(weight, []).append(run)
    places = [{(run.column, run.seed) for run in group} for group in by_weight.values()]
    shared = set.intersection(*places) if places else set()
    if len(by_weight) < 2 or not shared:
        return []
    rows = [
        (weight, [run for run in group if (run.column, run.seed) in shared])
        for weight, group in sorted(by_weight.items())
    ]
    iou = [
        Line(f"{kind} IoU", color, tuple((w, _mean_iou(group, kind)) for w, group in rows))
        for kind, color in (("soft", 1), ("hard", 2))
    ]
    accuracy = Line("accuracy", 3, tuple((w, _accuracy(group)) for w, group in rows))
    x = uneven_axis([weight for weight, _ in rows], "overlap weight")
    y = axis_around(value for _, value in accuracy.points)
    drawn = (
        curve_chart("mean IoU of domain pairs", iou, x, Axis(0, 1.02), dots=True),
        curve_chart("out-of-domain accuracy, %", [accuracy], x, y, dots=True),
    )
    about = f"Mean over the {len(shared)} unseen domains and seeds that every weight has."
    keys = tuple(Key(line.label, line.color, "line") for line in (*iou, accuracy))
    return [Figure("masks_sweep", "Overlap weight, IoU and accuracy", about, drawn, keys)]


def _mean_iou(runs: list[Run], kind: str) -> float:
    return fmean(
        pair[kind]
        for run in runs
        for site in site_statistics(run).values()
        for pair in site["iou"].values()
    )


def _accuracy(runs: list[Run]) -> float:
    means = [run.result.mean(run.rule, "out_of_domain") for run in runs if run.result]
    return 100 * fmean(mean for mean in means if mean is not None)


def importance_section(study: Study) -> Section:
    study = study.drawn
    runs = _importance_runs(study)
    phases = _phases(study, runs)
    folds: list[Fold] = []
    for run in study.first_runs(runs):
        if arrays := run.arrays():
            title = f"{run.label}: {run.column} unseen, seed {run.seed}"
            folds.append(Fold(title, tuple(_grids(run, arrays)), open=not folds))
    return Section(
        "importance",
        "Importance masks",
        "The importance of a weight is how far training on the domains moved it from its common "
        "start. Stronger colour: larger; for weights, blue is positive and red negative.",
        (*([phases] if phases.panels else []), *folds),
    )


def _importance_runs(study: Study) -> list[Run]:
    return [run for run in study.runs if run.method == "importance"]


def _phases(study: Study, runs: list[Run]) -> Figure:
    """Draws loss and accuracy, dashed while importance is found, then solid."""
    panels: list[Drawing] = []
    curves = {run.name: run_curves(run) for run in runs}
    for name in ("loss", "accuracy"):
        lines: dict[tuple[str, str], list[Line]] = {}
        for run in runs:
            points, end = curves[run.name].get((name, ""), ()), end_of_phase_1(run)
            for phase in (1, 2):
                part = tuple(point for point in points if (point[0] <= end) == (phase == 1))
                label = f"{study.row_name(run.row)}, seed {run.seed}, phase {phase}"
                look = (study.color(run.row), part, phase == 1, study.tags(run.row, run.seed))
                lines.setdefault((run.column, ""), []).append(Line(label, *look))
        panels += curves_by_column(study, lines, f"{name}, {{}} unseen")
    color = study.color(runs[0].row) if runs else 0
    keys = (
        Key("phase 1: importance is found", color, "dashed"),
        Key("phase 2: the classifier", color, "line"),
    )
    return Figure("importance_phases", "Both phases", "", tuple(panels), keys)


def end_of_phase_1(run: Run) -> float:
    """Returns the last step of phase 1; of a run under way, the last that was logged in it."""
    arrays = run.arrays()
    if "phase_steps" in arrays:
        return float(arrays["phase_steps"][1])
    logged = [(each["statistics"].get("phase"), each["step"]) for each in run.evaluations]
    if not any(phase == 2 for phase, _ in logged):
        return run.steps_done
    return max((step for phase, step in logged if phase == 1), default=0)


def _grids(run: Run, arrays: Arrays) -> Iterator[Part]:
    """Yields one figure for what belongs to all domains, and one for each domain."""
    if any(max(values.shape, default=0) > LARGEST for values in arrays.values()):
        yield f"Layers larger than {LARGEST} × {LARGEST} show their first rows and columns."
    stem = f"importance_{safe_name(run.label)}_{safe_name(run.column)}"
    figures = {("all", "All domains together"): _OF_ALL}
    for domain in run.training_domains:
        own = {f"{what}/{domain}": title for what, title in _OF_DOMAIN.items()}
        figures[safe_name(domain), f"Trained on {domain} alone"] = own
    for (name, title), quantities in figures.items():
        panels = tuple(panel for each in quantities.items() for panel in _panels(arrays, *each))
        if panels:
            yield Figure(f"{stem}_{name}", title, "", panels)


def _panels(arrays: Arrays, prefix: str, title: str) -> Iterator[Drawing]:
    """Yields the layers side by side, on one scale of colour."""
    found = {
        name.rpartition("/")[2]: values.astype(float)
        for name, values in arrays.items()
        if name.rpartition("/")[0] == prefix and values.ndim == 2
    }
    high = max((float(np.abs(values).max()) for values in found.values()), default=0.0)
    digits = 0 if prefix.partition("/")[0] == "mask" else 2
    for layer, values in found.items():
        yield circle_grid(f"{title}, {layer}", values[:LARGEST, :LARGEST], high, digits)


def summary_text(studies: Iterable[Study]) -> str:
    """Describes the importance runs in words and numbers; empty without any."""
    lines: list[str] = []
    for study in studies:
        for run in _importance_runs(study):
            if arrays := run.arrays():
                lines += [*_summary(study, run, arrays), ""]
    return "\n".join(lines)


def _summary(study: Study, run: Run, arrays: Arrays) -> Iterator[str]:
    yield f"{study.title}: {run.label} ({run.backbone}), {run.column} unseen, seed {run.seed}"
    if run.result is not None:
        for view, by_domain in run.result.under(run.rule).views.items():
            for domain, measured in by_domain.items():
                share = f"{100 * measured.accuracy:.1f} % of {measured.images} images"
                yield f"  {VIEWS[view].title}, {domain}: {share}"
    for name, values in arrays.items():
        if values.ndim != 2:
            continue
        shape = " × ".join(map(str, values.shape))
        text = f"mean {values.mean():.4f}, lowest {values.min():.4f}, highest {values.max():.4f}"
        if name.startswith("mask/"):
            text = f"{100 * values.mean():.1f} % important"
        yield f"  {name} ({shape}): {text}"


def reweighting_section(study: Study) -> Section:
    """Shows the weights of source images, and how well a classifier separates the domains."""
    study = study.drawn
    runs = [run for run in study.runs if run.method == "reweighting"]
    rows, panels = [], []
    for run in runs:
        auc, size = (run.statistics.get(key) for key in ("auc", "effective_sample_size"))
        if isinstance(auc, int | float) and isinstance(size, int | float):
            about = (study.row_name(run.row), run.column, run.seed)
            numbers = (number(auc, ".3f"), number(size, ",.0f"))
            rows.append(study.table_row(run.row, *about, *numbers, seed=run.seed))
        arrays = run.arrays()
        if {"histogram_counts", "histogram_edges"} <= set(arrays):
            edges, counts = arrays["histogram_edges"], arrays["histogram_counts"]
            shares = 100 * counts / max(counts.sum(), 1)
            bins = [f"{low:.2f} – {high:.2f}" for low, high in pairwise(edges)]
            bars = [
                ChartRow(name, study.color(run.row), (Mark("", share, look="bar"),), f"{share:.1f}")
                for name, share in zip(bins, shares.tolist(), strict=True)
            ]
            axis = Axis(0, max(float(shares.max()), 1.0), "images, %")
            panels.append(row_chart(f"{run.column} unseen, seed {run.seed}", bars, axis))
    header = ("method", "unseen", "seed", "AUC", "effective sample size")
    about = "Share of the source images by weight; in plain training every weight is 1."
    parts: list[Part] = []
    if rows:
        parts.append(PageTable("Domain classifier and weights", header, tuple(rows)))
    if panels:
        parts.append(Figure("reweighting", "Weights of source images", about, tuple(panels)))
    return Section(
        "reweighting",
        "Sample re-weighting",
        "Source images that look like the target count more. A high AUC means that the domains are "
        "easy to tell apart; a small effective sample, that few images do the training.",
        tuple(parts),
    )
