"""Masks of units: which each domain keeps, how much domains share, and which units are whose.

Any method may have this section: it hands over `mask.<site>`, the probability that a training
domain keeps a unit (`[domains, units]`), and logs `kept` and `iou` of each site.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from unseen.reports.figures.charts import (
    Axis,
    Line,
    axis_around,
    curve_chart,
    thinned,
    uneven_axis,
)
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import heat_map, number_texts, unit_strips
from unseen.reports.figures.svg import Drawing, Key
from unseen.reports.gather import MethodKey
from unseen.reports.page.parts import Part, Section, first_and_folded
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name

_SITE = "mask."


def masks_section(study: Study) -> Section:
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
