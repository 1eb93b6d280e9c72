"""Where the mistakes are: by class, as confusion matrices, and what confidence is worth."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from unseen.records.result import DomainResult
from unseen.reports.figures.panels import Axis, CurvePanel, Figure, HeatPanel, Line
from unseen.reports.page.accuracy import legend
from unseen.reports.page.conclusion import Row
from unseen.reports.page.mistakes import mistake_sheets
from unseen.reports.page.parts import PageCell, PageRow, PageTable, Part, Section
from unseen.reports.page.studies import Study
from unseen.reports.page.training import safe

_FOR_MATRICES = 40  # classes; with more, a list of the most frequent confusions says more
_IN_ORDER = 30  # classes that a table of class accuracies has room for


class Pooled(NamedTuple):
    """A method on one unseen domain, counts added up over seeds."""

    row: Row
    domain: str
    confusion: np.ndarray
    calibration: np.ndarray
    """`[3, bins]`: images, summed confidence, right answers."""
    ece: float
    """Mean of the runs' expected calibration errors."""


def classes_section(study: Study) -> Section | None:
    parts: list[Part] = []
    for rule in study.rules:
        pooled = list(pool(study, rule))
        classes = study.results[0].classes if study.results else ()
        if pooled:
            parts += _by_class(study, rule, pooled, classes)
            parts += _calibration(study, rule, pooled)
    parts += mistake_sheets(study)
    if not parts:
        return None
    return Section(
        "classes",
        "Classes, confusions and confidence",
        "On the unseen domains" + (", added up over seeds." if len(study.seeds) > 1 else "."),
        tuple(parts),
    )


def pool(study: Study, rule: str) -> Iterator[Pooled]:
    """For every domain and method, where all runs have the same classes."""
    found: dict[tuple[str, Row], list[DomainResult]] = {}
    for result in study.results:
        if rule in result.rules:
            row = (result.method, result.backbone)
            for domain, measured in result.view(rule, "out_of_domain").items():
                found.setdefault((domain, row), []).append(measured)
    for domain in study.domains:
        for row in study.rows:
            own = found.get((domain, row), [])
            confusions = [each.confusion for each in own]
            if len({each.shape for each in confusions}) == 1:
                bins = [each.calibration for each in own]
                together = np.sum([(b.images, b.confidence, b.correct) for b in bins], axis=0)
                ece = fmean(each.error for each in bins)
                yield Pooled(row, domain, np.sum(confusions, axis=0), together, ece)


def _by_class(
    study: Study, rule: str, pooled: Sequence[Pooled], classes: Sequence[str]
) -> list[Part]:
    if len(classes) > _FOR_MATRICES:
        return [_frequent_confusions(study, rule, pooled, classes)]
    parts: list[Part] = []
    domains = list(dict.fromkeys(each.domain for each in pooled))
    if len(classes) <= _IN_ORDER:
        panels = [_class_panel(study, domain, pooled, classes) for domain in domains]
        about = "Share of each class's images that were recognised, in percent."
        parts.append(Figure(f"classes_{rule}", "Accuracy by class", about, tuple(panels), (), rule))
    for domain in domains:
        panels = tuple(
            _confusion_panel(study, each, classes) for each in pooled if each.domain == domain
        )
        about = "Percent of the images of a class (row) that were called each class (column)."
        name = f"confusion_{rule}_{safe(domain)}"
        parts.append(Figure(name, f"Confusions on {domain}", about, panels, (), rule))
    return parts


def shares(confusion: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; NaN where a class has no image."""
    total = confusion.sum(axis=1, keepdims=True)
    return np.divide(confusion, total, out=np.full(confusion.shape, np.nan), where=total > 0)


def _class_panel(
    study: Study, domain: str, pooled: Sequence[Pooled], classes: Sequence[str]
) -> HeatPanel:
    own = [each for each in pooled if each.domain == domain]
    values = np.stack([shares(each.confusion).diagonal() for each in own])
    names = tuple(study.row_name(each.row) for each in own)
    return HeatPanel(domain, names, tuple(classes), values, _percents(values))


def _confusion_panel(study: Study, pooled: Pooled, classes: Sequence[str]) -> HeatPanel:
    values = shares(pooled.confusion)
    names = tuple(classes)
    return HeatPanel(
        study.row_name(pooled.row), names, names, values, _percents(values), "true", "called"
    )


def _percents(values: np.ndarray) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple("" if np.isnan(value) else f"{100 * value:.0f}" for value in row) for row in values
    )


def _frequent_confusions(
    study: Study, rule: str, pooled: Sequence[Pooled], classes: Sequence[str]
) -> PageTable:
    rows = []
    for each in pooled:
        wrong = each.confusion.copy()
        np.fill_diagonal(wrong, 0)
        for place in np.argsort(-wrong, axis=None)[:8]:
            true, called = np.unravel_index(place, wrong.shape)
            count = int(wrong[true, called])
            if count:
                named = [classes[int(place)] for place in (true, called)]
                texts = (each.domain, study.row_name(each.row), *named)
                cells = (*(PageCell(text, text) for text in texts), PageCell(str(count), count))
                rows.append(PageRow(cells, study.tags(each.row)))
    header = ("domain", "method", "true", "called", "images")
    return PageTable("Most frequent confusions", header, tuple(rows), (), (), rule)


def _calibration(study: Study, rule: str, pooled: Sequence[Pooled]) -> list[Part]:
    panels = []
    for domain in dict.fromkeys(each.domain for each in pooled):
        lines = []
        for each in pooled:
            if each.domain != domain:
                continue
            label = f"{study.row_name(each.row)}, ECE {100 * each.ece:.1f} %"
            points = tuple(reliability(each.calibration))
            tags = study.tags(each.row)
            lines.append(Line(label, study.color(each.row), points, tags=tags))
        x, y = Axis(0, 1, "confidence"), Axis(0, 1, "accuracy")
        panels.append(CurvePanel(domain, tuple(lines), x, y, diagonal=True, dots=True))
    about = "Right answers against confidence, in 15 bins; on the dotted line confidence is honest,"
    about += " below it the model is too sure."
    figure = Figure(f"calibration_{rule}", "Calibration", about, tuple(panels), legend(study), rule)
    return [figure, _ece_table(study, rule, pooled)]


def reliability(bins: np.ndarray) -> Iterator[tuple[float, float]]:
    """Mean confidence and accuracy of each bin that has images."""
    for count, confidence, correct in bins.T:
        if count:
            yield confidence / count, correct / count


def _ece_table(study: Study, rule: str, pooled: Sequence[Pooled]) -> PageTable:
    domains = list(dict.fromkeys(each.domain for each in pooled))
    by_place = {(each.row, each.domain): each.ece for each in pooled}
    rows = []
    for row in dict.fromkeys(each.row for each in pooled):
        cells = [PageCell(study.row_name(row), study.row_name(row))]
        for domain in domains:
            ece = by_place.get((row, domain))
            cells.append(PageCell("–") if ece is None else PageCell(f"{100 * ece:.1f}", 100 * ece))
        rows.append(PageRow(tuple(cells), study.tags(row), study.color(row)))
    note = "Percent; mean over seeds; lower is better."
    title = "Expected calibration error"
    return PageTable(title, ("method", *domains), tuple(rows), (note,), (), rule)
