"""Masks of units: which each domain keeps, how much domains share, and which units are whose.

Any method may have this section: it hands over `mask.<site>`, the probability that a training
domain keeps a unit (`[domains, units]`), and logs `kept` and `iou` of each site.
"""

from collections.abc import Mapping
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from unseen.reports.figures.axes import Axis, axis_around, uneven_axis
from unseen.reports.figures.curves import CurvePanel, Line, thinned
from unseen.reports.figures.figure import Figure, Key
from unseen.reports.figures.grids import HeatPanel, StripPanel, number_texts
from unseen.reports.gather import MethodKey
from unseen.reports.page.parts import Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name

_SITE = "mask."


def masks_section(study: Study) -> Section | None:
    masked = [run for run in study.runs if site_statistics(run)]
    figures: list[Figure] = []
    for row in dict.fromkeys(run.row for run in masked):
        own = [run for run in masked if run.row == row]
        figures += [_strips(study, row, own), _overlap(study, row, own), _kept(study, row, own)]
    figures += _overlap_weights(masked)
    drawn = tuple(figure for figure in figures if figure.panels)
    if not drawn:
        return None
    return Section(
        "masks",
        "Domain-specific masks",
        "Every training domain has its own mask over the units at a site. Units kept by all "
        "domains are shared; units kept by one are specific to that domain.",
        drawn,
    )


def site_statistics(run: Run) -> dict[str, Mapping[str, Any]]:
    return {
        site: values
        for site, values in run.statistics.items()
        if isinstance(values, Mapping) and {"kept", "iou"} <= set(values)
    }


def _strips(study: Study, row: MethodKey, runs: list[Run]) -> Figure:
    drawn = tuple(
        StripPanel(
            f"{run.column} unseen, {name.removeprefix(_SITE)}", run.training_domains, probs > 0.5
        )
        for run in study.first_runs(runs)
        for name, probs in run.arrays().items()
        if name.startswith(_SITE)
    )
    return Figure(
        f"masks_strips_{safe_name('_'.join(row))}",
        f"Shared and specific units: {study.row_name(row)}",
        "Every unit of a site, sorted by the domains that keep it (probability above one half); "
        f"white where a domain drops it. {_which(study)}",
        drawn,
        (Key("all domains", 1), Key("some domains", 5), Key("one domain", 2)),
    )


def _which(study: Study) -> str:
    return f"Runs of seed {study.seeds[0]}." if len(study.seeds) > 1 else ""


def _overlap(study: Study, row: MethodKey, runs: list[Run]) -> Figure:
    drawn = []
    for column in study.columns:
        own = [run for run in runs if run.column == column]
        sites = [site_statistics(run) for run in own]
        for site in sites[0] if sites else ():
            pairs = [each[site]["iou"] for each in sites if site in each]
            title = f"{column} unseen, {site}"
            drawn.append(_overlap_panel(title, own[0].training_domains, pairs))
    about = "Intersection over union of two domains' masks, at the chosen step"
    about += ", mean over seeds" if len(study.seeds) > 1 else ""
    about += ". Below the diagonal: soft (probabilities). Above: hard (units above one half)."
    name = f"masks_iou_{safe_name('_'.join(row))}"
    return Figure(name, f"Overlap of masks: {study.row_name(row)}", about, tuple(drawn))


def _overlap_panel(
    title: str, domains: tuple[str, ...], pairs: list[Mapping[str, Mapping[str, float]]]
) -> HeatPanel:
    values = np.full((len(domains), len(domains)), np.nan)
    for (i, a), (j, b) in combinations(enumerate(domains), 2):
        for place, kind in (((j, i), "soft"), ((i, j), "hard")):
            known = [each[f"{a}|{b}"][kind] for each in pairs if f"{a}|{b}" in each]
            values[place] = fmean(known) if known else np.nan
    return HeatPanel(title, domains, domains, values, number_texts(values, ".2f"))


def _kept(study: Study, row: MethodKey, runs: list[Run]) -> Figure:
    drawn = tuple(
        _kept_panel(study, run, site)
        for run in study.first_runs(runs)
        for site in site_statistics(run)
    )
    return Figure(
        f"masks_kept_{safe_name('_'.join(row))}",
        f"Kept share over training: {study.row_name(row)}",
        "Share of a site's units that a domain keeps. Solid: mean probability (soft); dashed: "
        f"share above one half (hard). {_which(study)}",
        drawn,
        tuple(Key(domain, study.domain_color(domain), "line") for domain in study.domains),
    )


def _kept_panel(study: Study, run: Run, site: str) -> CurvePanel:
    logged = [
        (record["step"], record["statistics"][site]["kept"])
        for record in run.evaluations
        if site in (record.get("statistics") or {})
    ]
    lines = tuple(
        Line(
            f"{domain}, {kind}",
            study.domain_color(domain),
            thinned([(step, kept[domain][kind]) for step, kept in logged]),
            dashed=kind == "hard",
        )
        for domain in run.training_domains
        for kind in ("soft", "hard")
    )
    x = Axis(0, max((step for step, _ in logged), default=1), "step")
    y = axis_around(value for line in lines for _, value in line.points)
    return CurvePanel(f"{run.column} unseen, {site}", lines, x, y, dots=True)


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
    iou = tuple(
        Line(f"{kind} IoU", color, tuple((w, _mean_iou(group, kind)) for w, group in rows))
        for kind, color in (("soft", 1), ("hard", 2))
    )
    accuracy = Line("accuracy", 3, tuple((w, _accuracy(group)) for w, group in rows))
    x = uneven_axis([weight for weight, _ in rows], "overlap weight")
    y = axis_around(value for _, value in accuracy.points)
    drawn = (
        CurvePanel("mean IoU of domain pairs", iou, x, Axis(0, 1.02), dots=True),
        CurvePanel("out-of-domain accuracy, %", (accuracy,), x, y, dots=True),
    )
    about = f"Mean over the {len(shared)} held-out domains and seeds that every weight has."
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
