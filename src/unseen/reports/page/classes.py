"""Where the mistakes are: by class, as confusion matrices, and what confidence is worth."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np

from unseen.reports.figures.charts import Axis, Line, curve_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import MOST_CLASSES, confusion_map, heat_map, number_texts, shares
from unseen.reports.gather import MethodKey
from unseen.reports.page.parts import PageTable, Part, Section, number
from unseen.reports.page.pictures import mistake_sheets
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name
from unseen.results.result import DomainResult, RunResult

IN_DOMAIN = "in domain"
_IN_ORDER = 30  # classes that a table of class accuracies has room for
_MOST_CONFUSIONS = 8  # of a method on a domain that are listed where classes are many

Pooled = tuple[MethodKey, str, tuple[str, ...], np.ndarray]
"""A method on one unseen domain: the names of its classes, and counts added up over seeds."""


def classes_section(study: Study) -> Section:
    parts: list[Part] = []
    for rule in study.rules:
        parts += _by_class(study, rule, list(pool(study, rule)))
        for scaled in (False, True):
            found = list(reliabilities(study, rule, scaled))
            if found:
                parts.append(_calibration_figure(study, rule, found, scaled))
                parts.append(_calibration_table(study, rule, found, scaled))
    return Section(
        "classes",
        "Classes, confusions and confidence",
        "On the unseen domains" + (", added up over seeds." if len(study.seeds) > 1 else "."),
        (*parts, *mistake_sheets(study)),
    )


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
                yield row, place, classes.pop(), total


def _by_class(study: Study, rule: str, pooled: Sequence[Pooled]) -> Iterator[Part]:
    most = max((len(classes) for _, _, classes, _ in pooled), default=0)
    if most > MOST_CLASSES:
        rows = tuple(
            study.table_row(row, domain, study.row_name(row), *confused)
            for row, domain, classes, confusion in pooled
            for confused in _frequent_confusions(confusion, classes)
        )
        header = ("domain", "method", "true", "predicted", "images")
        yield PageTable("Most frequent confusions", header, rows, rule=rule)
        return
    domains = {domain: [each for each in pooled if each[1] == domain] for _, domain, *_ in pooled}
    if domains and most <= _IN_ORDER:
        panels = []
        for domain, own in domains.items():  # all have the same classes, as a rule
            alike = [(row, c) for row, _, classes, c in own if classes == own[0][2]]
            values = np.stack([shares(confusion).diagonal() for _, confusion in alike])
            names = [study.row_name(row) for row, _ in alike]
            panels.append(
                heat_map(domain, names, own[0][2], values, number_texts(100 * values, ".0f"))
            )
        about = "Share of each class's images that were recognised, in percent."
        name = f"classes_{rule}"
        yield Figure(name, "Accuracy by class", about, tuple(panels), rule=rule)
    for domain, own in domains.items():
        panels = [confusion_map(study.row_name(row), c, classes) for row, _, classes, c in own]
        about = "Percent of the images of a class (row) that were predicted as each class (column)."
        name = f"confusion_{rule}_{safe_name(domain)}"
        yield Figure(name, f"Confusions on {domain}", about, tuple(panels), rule=rule)


def _frequent_confusions(
    confusion: np.ndarray, classes: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    """Yields true class, predicted class and number of images, the most frequent first."""
    wrong = confusion - np.diag(confusion.diagonal())
    for place in np.argsort(-wrong, axis=None)[:_MOST_CONFUSIONS]:
        true, predicted = map(int, np.unravel_index(place, wrong.shape))
        if wrong[true, predicted]:
            yield classes[true], classes[predicted], int(wrong[true, predicted])


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
        curve_chart(place, own, x, y, diagonal=True, dots=True) for place, own in lines.items()
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
