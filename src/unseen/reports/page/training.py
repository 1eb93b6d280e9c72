"""What happened in training: curves of all runs, and what single methods hand over, which are masks
of units, importance of weights, and weights of source images.

Any method may have the section on masks: it hands over `mask.<site>`, the probability that a
training domain keeps a unit (`[domains, units]`), and logs `kept` and `iou` of each site.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, product
from statistics import fmean
from typing import Any

import numpy as np

from unseen.reports.figures import charts
from unseen.reports.figures.charts import Line, Points
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import circle_grid, heat_map, number_texts, unit_strips
from unseen.reports.figures.svg import Drawing, Key
from unseen.reports.page import parts
from unseen.reports.page.parts import Fold, PageTable, Part, Section
from unseen.reports.page.studies import Run, Study
from unseen.reports.tables import MethodKey
from unseen.results.folder import safe_name
from unseen.results.result import VIEWS
from unseen.settings.experiment import METRICS

Curves = dict[tuple[str, str], Points]
"""By quantity and domain; what is not measured by domain has an empty one."""
_NOT_CURVES = {"step", "lr"}
_MEASURED = ("validation ", "oracle's look at ")
"""The names of quantities that an evaluation measured, by domain, begin like this."""
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


def training_section(study: Study) -> Section:
    study = study.drawn
    curves = {run.name: run_curves(run) for run in study.runs}
    quantities = dict.fromkeys(name for own in curves.values() for name, _ in own)
    names = sorted(quantities, key=_rank)
    shown: list[Part] = [_figure(study, curves, name) for name in names if _rank(name) != 2]
    of_losses = tuple(_figure(study, curves, name) for name in names if _rank(name) == 2)
    if of_losses:
        shown.append(Fold("Parts of the losses, and what else methods log", of_losses))
    return Section(
        "training",
        "Training",
        "One line per run; point at a panel to read its values, click on it to enlarge "
        "it. Validation images come from the training domains: the unseen domain plays no part.",
        tuple(shown),
    )


def _rank(name: str) -> int:
    """Puts loss first, then accuracy, and what evaluations measured last."""
    return 3 if name.startswith(_MEASURED) else {"loss": 0, "accuracy": 1}.get(name, 2)


def run_curves(run: Run) -> Curves:
    """Returns what the method logged and what evaluations measured. A merged model was not trained
    and has none."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    if run.result is not None and run.result.merged is not None:
        return {}
    for record in run.metrics:
        for place, value in _values(record):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(place, []).append((record["step"], value))
    return {place: charts.thinned(points) for place, points in found.items()}


def _values(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    if "validation" not in record:
        yield from (((name, ""), v) for name, v in record.items() if name not in _NOT_CURVES)
        return
    measured = {f"validation_{metric}": f"validation {name}" for metric, name in METRICS.items()}
    measured |= {"validation": "validation accuracy", "unseen": "oracle's look at unseen domains"}
    for key, name in measured.items():
        yield from (((name, domain), value) for domain, value in (record.get(key) or {}).items())


def _figure(study: Study, curves: Mapping[str, Curves], name: str) -> Figure:
    """Draws a quantity, a small panel for each held-out domain."""
    lines: dict[tuple[str, str], list[Line]] = {}
    logging = [run for run in study.runs if any(name == own for own, _ in curves[run.name])]
    for run in logging:
        label = study.row_name(run.row)
        if len(study.seeds) > 1:
            label += f", seed {run.seed}"
        color, tags = study.color(run.row), study.tags(run.row, run.seed)
        for (own, domain), points in curves[run.name].items():
            if own == name:
                line = Line(label, color, points, tags=tags)
                lines.setdefault((run.column, domain), []).append(line)
    x, y = charts.curve_axes(line for own in lines.values() for line in own)
    panels: list[Drawing] = []
    domains = sorted({domain for _, domain in lines}, key=study.rank)
    for column, domain in product(study.columns, domains):
        if (column, domain) in lines:
            title = f"{domain}, " * bool(domain) + f"{column} unseen"
            panels.append(charts.curve_chart(title, lines[column, domain], x, y))
    title = "accuracy on training batches" if name == "accuracy" else name.replace("_", " ")
    about = "A panel for each domain that was measured and each unseen domain."
    return Figure(
        f"curve_{safe_name(name)}",
        parts.capital(title),
        about if name.startswith(_MEASURED) else "",
        tuple(panels),
        study.legend(dict.fromkeys(run.row for run in logging)),
        small=True,
    )


def masks_section(study: Study) -> Section:
    study = study.drawn
    masked = [run for run in study.runs if _site_statistics(run)]
    shown: list[Part] = []
    for row in dict.fromkeys(run.row for run in masked):
        figures = _mask_figures(study, row, [run for run in masked if run.row == row])
        title = f"Overlap of masks, and kept share over training: {study.row_name(row)}"
        shown += parts.first_and_folded(title, [figure for figure in figures if figure.panels])
    return Section(
        "masks",
        "Domain-specific masks",
        "Every training domain has its own mask over the units at a site. Units kept by all "
        "domains are shared; units kept by one are specific to that domain.",
        tuple(shown),
    )


def _site_statistics(run: Run) -> dict[str, Mapping[str, Any]]:
    return {
        site: values
        for site, values in run.statistics.items()
        if isinstance(values, Mapping) and {"kept", "iou"} <= set(values)
    }


def _mask_figures(study: Study, row: MethodKey, runs: list[Run]) -> Iterator[Figure]:
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
        tuple(_kept(study, run, site) for run in first for site in _site_statistics(run)),
        tuple(Key(domain, study.domain_color(domain), "line") for domain in study.domains),
    )


def _overlaps(study: Study, runs: list[Run]) -> Iterator[Drawing]:
    for column in study.columns:
        own = [run for run in runs if run.column == column]
        sites = [_site_statistics(run) for run in own]
        for site in sites[0] if sites else ():
            domains = own[0].training_domains
            pairs = [each[site]["iou"] for each in sites if site in each]
            values = np.full((len(domains), len(domains)), np.nan)
            for (i, a), (j, b) in combinations(enumerate(domains), 2):
                for place, kind in (((j, i), "soft"), ((i, j), "hard")):
                    known = [each[f"{a}|{b}"][kind] for each in pairs if f"{a}|{b}" in each]
                    values[place] = fmean(known) if known else np.nan
            title, texts = f"{column} unseen, {site}", number_texts(values, ".2f")
            yield heat_map(title, domains, domains, values, texts)


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
            charts.thinned([(step, kept[domain][kind]) for step, kept in logged]),
            dashed=kind == "hard",
        )
        for domain in run.training_domains
        for kind in ("soft", "hard")
    ]
    x = charts.Axis(0, max((step for step, _ in logged), default=1), "step")
    y = charts.axis_around(value for line in lines for _, value in line.points)
    return charts.curve_chart(f"{run.column} unseen, {site}", lines, x, y, dots=True)


def importance_section(study: Study) -> Section:
    study = study.drawn
    folds: list[Fold] = []
    for run in study.first_runs(run for run in study.runs if run.method == "importance"):
        if arrays := run.arrays():
            title = f"{run.label}: {run.column} unseen, seed {run.seed}"
            folds.append(Fold(title, tuple(_grids(run, arrays)), open=not folds))
    return Section(
        "importance",
        "Importance masks",
        "The importance of a weight is how far training on the domains moved it from its common "
        "start. Stronger colour: larger; for weights, blue is positive and red negative.",
        tuple(folds),
    )


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
    layers = ((*name.rpartition("/"), values) for name, values in arrays.items())
    found = {n: v.astype(float) for start, _, n, v in layers if start == prefix and v.ndim == 2}
    high = max((float(np.abs(values).max()) for values in found.values()), default=0.0)
    digits = 0 if prefix.partition("/")[0] == "mask" else 2
    for layer, values in found.items():
        yield circle_grid(f"{title}, {layer}", values[:LARGEST, :LARGEST], high, digits)


def summary_text(studies: Iterable[Study]) -> str:
    """Describes the importance runs in words and numbers; empty without any."""
    runs = [(study, run) for study in studies for run in study.runs if run.method == "importance"]
    found = ((study, run, run.arrays()) for study, run in runs)
    return "\n\n".join("\n".join(_summary(*each)) for each in found if each[-1])


def _summary(study: Study, run: Run, arrays: Arrays) -> Iterator[str]:
    yield f"{study.title}: {run.label} ({run.backbone}), {run.column} unseen, seed {run.seed}"
    for view, by_domain in run.result.under(run.rule).views.items() if run.result else ():
        for domain, measured in by_domain.items():
            share = f"{100 * measured.accuracy:.1f} % of {measured.images} images"
            yield f"  {VIEWS[view].title}, {domain}: {share}"
    for name, values in arrays.items():
        if values.ndim == 2:
            text = f"mean {values.mean():.4f}, "
            text += f"lowest {values.min():.4f}, highest {values.max():.4f}"
            if name.startswith("mask/"):
                text = f"{100 * values.mean():.1f} % important"
            yield f"  {name} ({' × '.join(map(str, values.shape))}): {text}"


def reweighting_section(study: Study) -> Section:
    """Shows how well a classifier separates the domains, and how many images its weights leave."""
    study = study.drawn
    rows = []
    for run in (run for run in study.runs if run.method == "reweighting"):
        found = [run.statistics.get(key) for key in ("auc", "effective_sample_size")]
        if all(isinstance(each, int | float) for each in found):
            cells = [parts.number(*each) for each in zip(found, (".3f", ",.0f"), strict=True)]
            about = (study.row_name(run.row), run.column, run.seed)
            rows.append(study.table_row(run.row, *about, *cells, seed=run.seed))
    header = ("method", "unseen", "seed", "AUC", "effective sample size")
    table = PageTable("Domain classifier and weights", header, tuple(rows))
    return Section(
        "reweighting",
        "Sample re-weighting",
        "Source images that look like the target count more. A high AUC means that the domains are "
        "easy to tell apart; a small effective sample, that few images do the training.",
        (table,) * bool(rows),
    )
