"""Where the mistakes are: by class, as confusion matrices, and what confidence is worth."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np

from unseen.reports.confusions import (
    MOST_CLASSES,
    confusion_panel,
    frequent_confusions,
    share_panel,
    shares,
)
from unseen.reports.figures.axes import Axis
from unseen.reports.figures.curves import CurvePanel, Line
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import HeatPanel
from unseen.reports.gather import MethodKey
from unseen.reports.page.parts import PageTable, Part, Section, number
from unseen.reports.page.pictures import mistake_sheets
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name
from unseen.results.result import DomainResult, RunResult

IN_DOMAIN = "in domain"
_IN_ORDER = 30  # classes that a table of class accuracies has room for


def classes_section(study: Study) -> Section | None:
    parts: list[Part] = []
    for rule in study.rules:
        pooled = list(pool(study, rule))
        if pooled:
            parts += _by_class(study, rule, pooled)
        for scaled in (False, True):
            found = list(reliabilities(study, rule, scaled))
            if found:
                parts.append(_calibration_figure(study, rule, found, scaled))
                parts.append(_calibration_table(study, rule, found, scaled))
    parts += mistake_sheets(study)
    if not parts:
        return None
    return Section(
        "classes",
        "Classes, confusions and confidence",
        "On the unseen domains" + (", added up over seeds." if len(study.seeds) > 1 else "."),
        tuple(parts),
    )


class Pooled(NamedTuple):
    """A method on one unseen domain, counts added up over seeds."""

    row: MethodKey
    domain: str
    classes: tuple[str, ...]
    confusion: np.ndarray


def measured(
    study: Study, rule: str
) -> Iterator[tuple[str, MethodKey, list[tuple[RunResult, list[DomainResult]]]]]:
    """Yields what the runs of every method measured at every place: an unseen domain, or all
    training domains together."""
    found: dict[tuple[str, MethodKey], list[tuple[RunResult, list[DomainResult]]]] = {}
    for result in study.results:
        if rule in result.rules:
            places = {name: [each] for name, each in result.view(rule, "out_of_domain").items()}
            places[IN_DOMAIN] = list(result.view(rule, "in_domain").values())
            for place, domains in places.items():
                key = (place, (result.method, result.backbone))
                found.setdefault(key, []).append((result, domains))
    for place, row in product((*study.domains, IN_DOMAIN), study.rows):
        if (place, row) in found:
            yield place, row, found[place, row]


def pool(study: Study, rule: str) -> Iterator[Pooled]:
    """Yields every method on every domain where all of its runs have the same classes."""
    for place, row, runs in measured(study, rule):
        if place != IN_DOMAIN:
            confusions = [(result, each.confusion) for result, own in runs for each in own]
            classes = {result.names_of(confusion) for result, confusion in confusions}
            if len(classes) == 1:
                total = np.sum([confusion for _, confusion in confusions], axis=0)
                yield Pooled(row, place, classes.pop(), total)


def _by_class(study: Study, rule: str, pooled: Sequence[Pooled]) -> list[Part]:
    most = max(len(each.classes) for each in pooled)
    if most > MOST_CLASSES:
        return [_frequent_confusions(study, rule, pooled)]
    parts: list[Part] = []
    domains = {each.domain: [e for e in pooled if e.domain == each.domain] for each in pooled}
    if most <= _IN_ORDER:
        panels = tuple(_class_panel(study, domain, own) for domain, own in domains.items())
        about = "Share of each class's images that were recognised, in percent."
        parts.append(Figure(f"classes_{rule}", "Accuracy by class", about, panels, rule=rule))
    for domain, own in domains.items():
        panels = tuple(
            confusion_panel(study.row_name(each.row), each.confusion, each.classes) for each in own
        )
        about = "Percent of the images of a class (row) that were predicted as each class (column)."
        name = f"confusion_{rule}_{safe_name(domain)}"
        parts.append(Figure(name, f"Confusions on {domain}", about, panels, rule=rule))
    return parts


def _class_panel(study: Study, domain: str, pooled: Sequence[Pooled]) -> HeatPanel:
    """Shows methods with the classes of the first one; all have the same, unless they trained on
    other domains."""
    classes = pooled[0].classes
    own = [each for each in pooled if each.classes == classes]
    values = np.stack([shares(each.confusion).diagonal() for each in own])
    return share_panel(domain, [study.row_name(each.row) for each in own], classes, values)


def _frequent_confusions(study: Study, rule: str, pooled: Sequence[Pooled]) -> PageTable:
    rows = tuple(
        study.table_row(each.row, each.domain, study.row_name(each.row), *confused)
        for each in pooled
        for confused in frequent_confusions(each.confusion, each.classes)
    )
    header = ("domain", "method", "true", "predicted", "images")
    return PageTable("Most frequent confusions", header, rows, rule=rule)


class Reliability(NamedTuple):
    """A method in one place: an unseen domain, or all training domains together."""

    row: MethodKey
    place: str
    bins: np.ndarray
    """`[3, bins]`, added up over seeds: images, summed confidence, correct predictions."""
    ece: float
    """Expected calibration error: the mean over runs, and over training domains."""

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The mean confidence and the accuracy of each bin that has images."""
        return tuple((sure / n, correct / n) for n, sure, correct in self.bins.T if n)


def reliabilities(study: Study, rule: str, scaled: bool) -> Iterator[Reliability]:
    """Yields every method at every place; `scaled`: after temperature scaling."""
    for place, row, runs in measured(study, rule):
        by_run = [
            [each.calibrated if scaled else each.calibration for each in domains]
            for _, domains in runs
        ]
        known = [own for own in ([each for each in run if each] for run in by_run) if own]
        bins = [each for own in known for each in own]
        if len({len(each.images) for each in bins}) == 1:
            arrays = [(each.images, each.confidence, each.correct) for each in bins]
            ece = fmean(fmean(each.error for each in own) for own in known)
            yield Reliability(row, place, np.sum(arrays, axis=0), ece)


def _calibration_figure(
    study: Study, rule: str, found: Sequence[Reliability], scaled: bool
) -> Figure:
    x, y = Axis(0, 1, "confidence"), Axis(0, 1, "accuracy")
    lines: dict[str, list[Line]] = {}
    for each in found:
        label = f"{study.row_name(each.row)}, ECE {100 * each.ece:.1f} %"
        line = Line(label, study.color(each.row), each.points, tags=study.tags(each.row))
        lines.setdefault(each.place, []).append(line)
    panels = tuple(
        CurvePanel(place, tuple(own), x, y, diagonal=True, dots=True)
        for place, own in lines.items()
    )
    name, title = f"calibration_{rule}", "Calibration"
    about = (
        "Accuracy against confidence, in 15 bins; on the dotted line confidence is honest, "
        "below it the model is too sure."
    )
    if scaled:
        name, title = f"calibrated_{rule}", "Calibration after temperature scaling"
        about = (
            "The same predictions after scores were divided by the temperature that fits the "
            "source validation images best: what 'unseen predict' gives."
        )
    return Figure(name, title, about, panels, study.legend(), rule)


def _calibration_table(
    study: Study, rule: str, found: Sequence[Reliability], scaled: bool
) -> PageTable:
    places = list(dict.fromkeys(each.place for each in found))
    cells = {(each.row, each.place): number(100 * each.ece, ".1f") for each in found}
    rows = tuple(
        study.table_row(row, study.row_name(row), *(cells.get((row, place)) for place in places))
        for row in dict.fromkeys(each.row for each in found)
    )
    note = (
        "Percent; mean over seeds; lower is better. A domain's column is for runs that were not "
        f"trained on it, '{IN_DOMAIN}' for held-out images of the training domains."
    )
    title = "Expected calibration error" + (" after temperature scaling" if scaled else "")
    return PageTable(title, ("method", *places), rows, (note,), rule)
