"""Where the mistakes are: by class, as confusion matrices, and what confidence is worth."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from unseen.reports.confusions import (
    MOST_CLASSES,
    confusion_panel,
    frequent_confusions,
    share_panel,
    shares,
)
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import HeatPanel
from unseen.reports.gather import MethodKey
from unseen.reports.page.calibration import calibration_parts
from unseen.reports.page.look import method_row
from unseen.reports.page.parts import PageTable, Part, Section
from unseen.reports.page.pictures import mistake_sheets
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name

_IN_ORDER = 30  # classes that a table of class accuracies has room for


class Pooled(NamedTuple):
    """A method on one unseen domain, counts added up over seeds."""

    row: MethodKey
    domain: str
    classes: tuple[str, ...]
    confusion: np.ndarray


def classes_section(study: Study) -> Section | None:
    parts: list[Part] = []
    for rule in study.rules:
        pooled = list(pool(study, rule))
        if pooled:
            parts += _by_class(study, rule, pooled)
        parts += calibration_parts(study, rule)
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
    found: dict[tuple[str, MethodKey], list[tuple[tuple[str, ...], np.ndarray]]] = {}
    for result in study.results:
        if rule in result.rules:
            row = (result.method, result.backbone)
            for domain, measured in result.view(rule, "out_of_domain").items():
                confusion = measured.confusion
                own = (result.names_of(confusion), confusion)
                found.setdefault((domain, row), []).append(own)
    for domain in study.domains:
        for row in study.rows:
            own = found.get((domain, row), [])
            if len({classes for classes, _ in own}) == 1:
                yield Pooled(row, domain, own[0][0], np.sum([each for _, each in own], axis=0))


def _by_class(study: Study, rule: str, pooled: Sequence[Pooled]) -> list[Part]:
    most = max(len(each.classes) for each in pooled)
    if most > MOST_CLASSES:
        return [_frequent_confusions(study, rule, pooled)]
    parts: list[Part] = []
    domains = list(dict.fromkeys(each.domain for each in pooled))
    if most <= _IN_ORDER:
        panels = [_class_panel(study, domain, pooled) for domain in domains]
        about = "Share of each class's images that were recognised, in percent."
        parts.append(Figure(f"classes_{rule}", "Accuracy by class", about, tuple(panels), (), rule))
    for domain in domains:
        panels = tuple(
            confusion_panel(study.row_name(each.row), each.confusion, each.classes)
            for each in pooled
            if each.domain == domain
        )
        about = "Percent of the images of a class (row) that were called each class (column)."
        name = f"confusion_{rule}_{safe_name(domain)}"
        parts.append(Figure(name, f"Confusions on {domain}", about, panels, (), rule))
    return parts


def _class_panel(study: Study, domain: str, pooled: Sequence[Pooled]) -> HeatPanel:
    """Methods with the classes of the first one; all have the same, unless they trained on other
    domains."""
    own = [each for each in pooled if each.domain == domain]
    own = [each for each in own if each.classes == own[0].classes]
    values = np.stack([shares(each.confusion).diagonal() for each in own])
    names = [study.row_name(each.row) for each in own]
    return share_panel(domain, names, own[0].classes, values)


def _frequent_confusions(study: Study, rule: str, pooled: Sequence[Pooled]) -> PageTable:
    rows = tuple(
        method_row(study, each.row, each.domain, study.row_name(each.row), true, called, count)
        for each in pooled
        for true, called, count in frequent_confusions(each.confusion, each.classes)
    )
    header = ("domain", "method", "true", "called", "images")
    return PageTable("Most frequent confusions", header, rows, (), (), rule)
