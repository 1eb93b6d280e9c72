"""DMG's masks: what each domain keeps, how much domains share, and which units are whose."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from unseen.reports.figures.panels import (
    Axis,
    CurvePanel,
    Figure,
    HeatPanel,
    Key,
    Line,
    StripGroup,
    StripPanel,
)
from unseen.reports.figures.scales import apart, spanning
from unseen.reports.page.conclusion import Row
from unseen.reports.page.parts import Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.reports.page.training import safe, thinned


def masks_section(study: Study) -> Section | None:
    masked = [run for run in study.runs if site_statistics(run.statistics)]
    rows = list(dict.fromkeys(run.row for run in masked))
    parts: list[Part] = []
    for row in rows:
        own = [run for run in masked if run.row == row]
        parts += [_strips(study, row, own), _iou(study, row, own), _kept(study, row, own)]
    parts += _sweep(masked)
    drawn = tuple(part for part in parts if not isinstance(part, Figure) or part.panels)
    if not drawn:
        return None
    return Section(
        "masks",
        "Domain-specific masks",
        "Every training domain has a mask of its own over the units at a site. Units kept by all "
        "domains are shared; units kept by one are that domain's alone.",
        drawn,
    )


def site_statistics(statistics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The statistics of mask sites, whichever method recorded them."""
    return {
        site: values
        for site, values in statistics.items()
        if isinstance(values, Mapping) and {"kept", "iou"} <= set(values)
    }


def _one_per_column(study: Study, runs: list[Run]) -> list[Run]:
    """The run of the lowest seed for each held-out domain."""
    first = {run.column: run for run in sorted(runs, key=lambda run: -run.seed)}
    return [first[column] for column in study.columns if column in first]


def _kept(study: Study, row: Row, runs: list[Run]) -> Figure:
    panels = []
    for run in _one_per_column(study, runs):
        for site in site_statistics(run.statistics):
            lines = []
            for domain in run.training_domains:
                for kind in ("soft", "hard"):
                    points = [
                        (record["step"], record["statistics"][site]["kept"][domain][kind])
                        for record in run.evaluations
                        if site in (record.get("statistics") or {})
                    ]
                    color = domain_color(study, domain)
                    label = f"{domain}, {kind}"
                    lines.append(Line(label, color, thinned(points), dashed=kind == "hard"))
            most = max((point[0] for line in lines for point in line.points), default=1)
            x, y = Axis(0, most, "step"), spanning(p[1] for line in lines for p in line.points)
            panels.append(CurvePanel(f"{run.column} unseen, {site}", tuple(lines), x, y, dots=True))
    about = "Share of a site's units that a domain keeps. Solid: mean chance (soft); dashed: share "
    about += f"above one half (hard). {_which(study)}"
    return Figure(
        f"masks_kept_{safe('_'.join(row))}",
        f"Kept share over training: {study.row_name(row)}",
        about,
        tuple(panels),
        domain_legend(study, "line"),
    )


def _iou(study: Study, row: Row, runs: list[Run]) -> Figure:
    panels = []
    for column in study.columns:
        own = [run for run in runs if run.column == column]
        sites = [site_statistics(run.statistics) for run in own]
        for site in sites[0] if sites else ():
            pairs = [each[site]["iou"] for each in sites if site in each]
            title = f"{column} unseen, {site}"
            panels.append(_iou_panel(title, own[0].training_domains, pairs))
    about = "Intersection over union of two domains' masks, at the step that counts"
    about += ", mean over seeds" if len(study.seeds) > 1 else ""
    about += ". Below the diagonal: soft (chances). Above: hard (units above one half)."
    name = f"masks_iou_{safe('_'.join(row))}"
    return Figure(name, f"Overlap of masks: {study.row_name(row)}", about, tuple(panels))


def _iou_panel(
    title: str, domains: tuple[str, ...], pairs: list[Mapping[str, Mapping[str, float]]]
) -> HeatPanel:
    values = np.full((len(domains), len(domains)), np.nan)
    for (i, a), (j, b) in combinations(enumerate(domains), 2):
        for place, kind in (((j, i), "soft"), ((i, j), "hard")):
            known = [each[key][kind] for each in pairs for key in (f"{a}|{b}",) if key in each]
            values[place] = fmean(known) if known else np.nan
    texts = tuple(
        tuple("" if np.isnan(value) else f"{value:.2f}" for value in row) for row in values
    )
    return HeatPanel(title, domains, domains, values, texts)


def _strips(study: Study, row: Row, runs: list[Run]) -> Figure:
    panels = []
    for run in _one_per_column(study, runs):
        for site, kept in mask_tensors(run).items():
            groups = sorted_units(kept)
            panels.append(StripPanel(f"{run.column} unseen, {site}", run.training_domains, groups))
    about = "Every unit of a site, sorted by the domains that keep it (chance above one half); "
    about += f"white where a domain drops it. {_which(study)}"
    keys = (Key("all domains", 1), Key("some domains", 5), Key("one domain", 2))
    name = f"masks_strips_{safe('_'.join(row))}"
    return Figure(
        name, f"Shared and specific units: {study.row_name(row)}", about, tuple(panels), keys
    )


def _which(study: Study) -> str:
    return f"Runs of seed {study.seeds[0]}." if len(study.seeds) > 1 else ""


def mask_tensors(run: Run) -> dict[str, np.ndarray]:
    """By site, `[domains, units]`: whether a domain keeps a unit, in the weights that count."""
    from safetensors import safe_open

    path = run.folder.weights(run.rule)
    if not path.is_file():
        return {}
    with safe_open(path, "np") as file:
        names = set(file.keys())
        return {
            site: file.get_tensor(f"logits.{place}") > 0
            for place, site in enumerate(site_statistics(run.statistics))
            if f"logits.{place}" in names
        }


def sorted_units(kept: np.ndarray) -> tuple[StripGroup, ...]:
    """Shared by all domains first, then by fewer and fewer, last those that no domain keeps."""
    counted = Counter(tuple(bool(on) for on in unit) for unit in kept.T)
    ordered = sorted(counted, key=lambda on: (-sum(on), [not each for each in on]))
    return tuple(StripGroup(on, counted[on]) for on in ordered)


def _sweep(runs: list[Run]) -> list[Figure]:
    """Overlap weight against IoU and accuracy, where runs differ in it."""
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
    accuracy = (Line("accuracy", 3, tuple((w, _accuracy(group)) for w, group in rows)),)
    x = apart([weight for weight, _ in rows], "overlap weight")
    panels = (
        CurvePanel("mean IoU of domain pairs", iou, x, Axis(0, 1.02), dots=True),
        CurvePanel(
            "out-of-domain accuracy, %", accuracy, x, spanning([p[1] for p in accuracy[0].points]),
            dots=True,
        ),
    )  # fmt: skip
    about = f"Mean over the {len(shared)} held-out domains and seeds that every weight has."
    keys = (Key("soft IoU", 1, "line"), Key("hard IoU", 2, "line"), Key("accuracy", 3, "line"))
    return [Figure("masks_sweep", "Overlap weight, IoU and accuracy", about, panels, keys)]


def _mean_iou(runs: list[Run], kind: str) -> float:
    return fmean(
        pair[kind]
        for run in runs
        for site in site_statistics(run.statistics).values()
        for pair in site["iou"].values()
    )


def _accuracy(runs: list[Run]) -> float:
    means = [run.result.mean(run.rule, "out_of_domain") for run in runs if run.result]
    return 100 * fmean(mean for mean in means if mean is not None)


def domain_color(study: Study, domain: str) -> int:
    return 1 + study.domains.index(domain) % 11


def domain_legend(study: Study, style: Any) -> tuple[Key, ...]:
    return tuple(Key(domain, domain_color(study, domain), style) for domain in study.domains)
