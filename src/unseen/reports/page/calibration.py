"""What confidence is worth, before and after temperature scaling, in domain and out of it."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from unseen.reports.figures.axes import Axis
from unseen.reports.figures.curves import CurvePanel, Line
from unseen.reports.figures.figure import Figure
from unseen.reports.gather import MethodKey
from unseen.reports.page.look import method_legend, method_row, number
from unseen.reports.page.parts import PageTable, Part
from unseen.reports.page.studies import Study
from unseen.results.result import Calibration, DomainResult, RunResult

IN_DOMAIN = "in domain"


class Reliability(NamedTuple):
    """A method in one place: an unseen domain, or all training domains together."""

    row: MethodKey
    place: str
    bins: np.ndarray
    """`[3, bins]`, added up over seeds: images, summed confidence, right answers."""
    ece: float
    """Mean of the runs' expected calibration errors, in domain of every training domain's."""


def calibration_parts(study: Study, rule: str) -> list[Part]:
    """Reliability as it was, and after scaling where runs have a temperature."""
    parts: list[Part] = []
    for after in (False, True):
        found = list(pooled_bins(study, rule, after))
        if found:
            parts += [_figure(study, rule, found, after), _table(study, rule, found, after)]
    return parts


def pooled_bins(study: Study, rule: str, after: bool) -> Iterator[Reliability]:
    """For every place and method; of runs that have no temperature nothing after scaling."""
    found: dict[tuple[str, MethodKey], list[list[Calibration]]] = {}
    for result in study.results:
        if rule in result.rules:
            row = (result.method, result.backbone)
            for place, bins in _bins(result, rule, after):
                found.setdefault((place, row), []).append(bins)
    for place in (*study.domains, IN_DOMAIN):
        for row in study.rows:
            runs = found.get((place, row), [])
            everything = [each for bins in runs for each in bins]
            if len({len(each.images) for each in everything}) == 1:
                arrays = [(each.images, each.confidence, each.correct) for each in everything]
                ece = fmean(fmean(each.error for each in bins) for bins in runs)
                yield Reliability(row, place, np.sum(arrays, axis=0), ece)


def _bins(result: RunResult, rule: str, after: bool) -> Iterator[tuple[str, list[Calibration]]]:
    """By place, of one run."""

    def bins_of(each: DomainResult) -> Calibration | None:
        return each.calibrated if after else each.calibration

    for domain, each in result.view(rule, "out_of_domain").items():
        if (bins := bins_of(each)) is not None:
            yield domain, [bins]
    inside = map(bins_of, result.view(rule, "in_domain").values())
    if known := [bins for bins in inside if bins is not None]:
        yield IN_DOMAIN, known


def reliability(bins: np.ndarray) -> Iterator[tuple[float, float]]:
    """Mean confidence and accuracy of each bin that has images."""
    for count, confidence, correct in bins.T:
        if count:
            yield confidence / count, correct / count


def _figure(study: Study, rule: str, found: Sequence[Reliability], after: bool) -> Figure:
    panels: list[CurvePanel] = []
    for place in dict.fromkeys(each.place for each in found):
        lines = tuple(
            Line(
                f"{study.row_name(each.row)}, ECE {100 * each.ece:.1f} %",
                study.color(each.row),
                tuple(reliability(each.bins)),
                tags=study.tags(each.row),
            )
            for each in found
            if each.place == place
        )
        x, y = Axis(0, 1, "confidence"), Axis(0, 1, "accuracy")
        panels.append(CurvePanel(place, lines, x, y, diagonal=True, dots=True))
    about = (
        "Right answers against confidence, in 15 bins; on the dotted line confidence is honest, "
        "below it the model is too sure."
    )
    if after:
        about = (
            "The same answers after scores were divided by the temperature that fits the source "
            "validation images best: what 'unseen predict' gives."
        )
    name = f"calibrated_{rule}" if after else f"calibration_{rule}"
    title = "Calibration after temperature scaling" if after else "Calibration"
    return Figure(name, title, about, tuple(panels), method_legend(study), rule)


def _table(study: Study, rule: str, found: Sequence[Reliability], after: bool) -> PageTable:
    places = list(dict.fromkeys(each.place for each in found))
    by_place = {(each.row, each.place): number(100 * each.ece, ".1f") for each in found}
    rows = tuple(
        method_row(study, row, study.row_name(row), *(by_place.get((row, p)) for p in places))
        for row in dict.fromkeys(each.row for each in found)
    )
    notes = [
        "Percent; mean over seeds; lower is better. A domain's column is for runs that were not "
        f"trained on it, '{IN_DOMAIN}' for held-out images of the training domains."
    ]
    missing = [each for each in study.results if _has_no_temperature(each, rule)]
    if after and missing:
        several = f"{len(missing)} runs of earlier versions have no temperature: left out."
        one = "1 run of an earlier version has no temperature: left out."
        notes.append(one if len(missing) == 1 else several)
    title = "Expected calibration error" + (" after temperature scaling" if after else "")
    return PageTable(title, ("method", *places), rows, tuple(notes), (), rule)


def _has_no_temperature(result: RunResult, rule: str) -> bool:
    return rule in result.rules and result.under(rule).temperature is None
