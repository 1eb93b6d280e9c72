"""Where the mistakes are: by class, as confusion matrices, as images with what the model looked at,
and what confidence is worth."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np

from unseen.reports.figures.charts import Axis, Line, curve_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import MOST_CLASSES, confusion_map, heat_map, number_texts, shares
from unseen.reports.page.parts import Fold, PageCell, PageTable, Part, Section
from unseen.reports.page.pictures import mistake_sheets
from unseen.reports.page.studies import Study
from unseen.reports.tables import MethodKey
from unseen.results.folder import safe_name
from unseen.results.result import OTHER_CLASSES, DomainResult, RunResult

IN_DOMAIN = "in domain"
_IN_ORDER = 30  # classes that a table of class accuracies has room for
_MOST_WEAK = 8  # rows of the table of the weakest classes
_MOST_CONFUSIONS = 8  # of a method on a domain that are listed where classes are many
_MOST_CELLS = 30_000  # of all matrices under a rule: a page with more would be slow to open

Pooled = tuple[MethodKey, str, tuple[str, ...], np.ndarray]
"""A method on one unseen domain: the names of its classes, and counts added up over seeds."""


def classes_section(study: Study) -> Section:
    """Shows the weakest classes and the worst mistakes first, then all classes and confidence."""
    study = study.drawn
    lead = "Classes, mistakes and confidence on the unseen domains"
    lead += ", added up over seeds." if len(study.seeds) > 1 else "."
    pooled = {rule: list(pool(study, rule)) for rule in study.rules}
    parts = (
        *study.under_rules(lambda study, rule: _weakest_classes(study, pooled[rule])),
        *mistake_sheets(study),
        *study.under_rules(lambda study, rule: _by_class(study, pooled[rule])),
        *study.under_rules(_calibration),
    )
    return Section("classes", "Weak spots", lead, parts)


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
        confusions = [(result, each.confusion) for result, own in runs for each in own]
        classes = {result.names_of(confusion) for result, confusion in confusions}
        if place != IN_DOMAIN and len(classes) == 1:
            total = np.sum([confusion for _, confusion in confusions], axis=0)
            yield row, place, classes.pop(), total


def _weakest_classes(study: Study, pooled: Sequence[Pooled]) -> Iterator[PageTable]:
    """Lists the class that each method recognises least on each domain, the weakest first."""
    rows = []
    for row, domain, classes, confusion in pooled:
        share = shares(confusion)
        known = [name != OTHER_CLASSES for name in classes]
        if np.isnan(share.diagonal()[known]).all():
            continue
        weakest = int(np.nanargmin(np.where(known, share.diagonal(), np.nan)))
        wrong = np.where(np.arange(len(classes)) == weakest, 0, confusion[weakest])
        taken_for, recognised = int(wrong.argmax()), float(share[weakest, weakest])
        often = f"{classes[taken_for]} ({share[weakest, taken_for]:.0%})" if wrong.any() else ""
        about = (domain, classes[weakest], PageCell(f"{recognised:.0%}", recognised))
        images = int(confusion[weakest].sum())
        line = study.table_row(row, study.row_name(row), *about, images, often)
        rows.append((recognised, line))
    rows.sort(key=lambda each: each[0])
    header = ("method", "domain", "weakest class", "recognised", "images", "taken for")
    if rows:
        yield PageTable("Weakest classes", header, tuple(row for _, row in rows[:_MOST_WEAK]))


def _by_class(study: Study, pooled: Sequence[Pooled]) -> Iterator[Part]:
    most = max((len(classes) for _, _, classes, _ in pooled), default=0)
    by_domain: dict[str, list[tuple[MethodKey, tuple[str, ...], np.ndarray]]] = {}
    for row, domain, classes, confusion in pooled:
        by_domain.setdefault(domain, []).append((row, classes, confusion))
    if 0 < most <= _IN_ORDER:
        panels = []
        for domain, own in by_domain.items():  # all have the same classes, as a rule
            alike = [(row, c) for row, classes, c in own if classes == own[0][1]]
            values = np.stack([shares(confusion).diagonal() for _, confusion in alike])
            names = [study.row_name(row) for row, _ in alike]
            texts = number_texts(100 * values, ".0f")
            panels.append(heat_map(domain, names, own[0][1], values, texts))
        about = "Share of each class's images that were recognised, in percent."
        yield Figure("classes", "Accuracy by class", about, tuple(panels))
    if most > MOST_CLASSES or sum(confusion.size for *_, confusion in pooled) > _MOST_CELLS:
        rows = tuple(
            study.table_row(row, study.row_name(row), domain, *confused)
            for row, domain, classes, confusion in pooled
            for confused in _frequent_confusions(confusion, classes)
        )
        header = ("method", "domain", "true", "predicted", "images")
        yield Fold("Most frequent confusions", (PageTable("Confusions", header, rows),))
    elif pooled:
        about = "Percent of the images of a class (row) that were predicted as each class (column)."
        matrices = []
        for domain, own in by_domain.items():
            panels = tuple(confusion_map(study.row_name(r), c, classes) for r, classes, c in own)
            name = f"confusion_{safe_name(domain)}"
            matrices.append(Figure(name, f"Confusions on {domain}", about, panels))
        yield Fold("Confusion matrices", tuple(matrices))


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
    error: float
    """Expected calibration error: the mean over runs, and over training domains."""
    after: float | None
    """The same after temperature scaling."""


def reliabilities(study: Study, rule: str) -> Iterator[Reliability]:
    """Yields every method at every place."""
    for place, row, runs in measured(study, rule):
        bins = [each.calibration for _, domains in runs for each in domains]
        if len({len(each.images) for each in bins}) == 1:
            arrays = [(each.images, each.confidence, each.correct) for each in bins]
            error = fmean(fmean(e.calibration_error for e in own) for _, own in runs if own)
            scaled = [[e.calibrated_error for e in own if e.calibrated] for _, own in runs]
            known = [fmean(own) for own in scaled if own]  # pyright: ignore[reportArgumentType]
            after = fmean(known) if known else None
            yield Reliability(row, place, np.sum(arrays, axis=0), error, after)


def _calibration(study: Study, rule: str) -> Iterator[Part]:
    found = list(reliabilities(study, rule))
    if not found:
        return
    yield _calibration_table(study, found)
    x, y = Axis(0, 1, "confidence"), Axis(0, 1, "accuracy")
    lines: dict[str, list[Line]] = {}
    for each in found:
        bins = [(sure / n, correct / n, int(n)) for n, sure, correct in each.bins.T if n]
        line = Line(
            f"{study.row_name(each.row)}, ECE {100 * each.error:.1f} %",
            study.color(each.row),
            tuple((sure, correct) for sure, correct, _ in bins),
            tags=study.tags(each.row),
            images=tuple(n for *_, n in bins),
        )
        lines.setdefault(each.place, []).append(line)
    panels = tuple(
        curve_chart(place, own, x, y, diagonal=True, dots=True) for place, own in lines.items()
    )
    about = (
        "Accuracy against confidence before temperature scaling, in 15 bins; the larger a dot, the "
        "more images. On the dotted line confidence is honest, below it the model is too sure."
    )
    yield Figure("calibration", "Calibration", about, panels, study.legend())


def _calibration_table(study: Study, found: Sequence[Reliability]) -> PageTable:
    """Shows the errors before and after scaling, and names those that scaling made larger."""
    cells: dict[MethodKey, dict[str, PageCell]] = {}
    worse = []
    for each in found:
        text, last = f"{100 * each.error:.1f}", each.error
        if each.after is not None:
            text, last = f"{text} → {100 * each.after:.1f}", each.after
            if round(100 * each.after, 1) > round(100 * each.error, 1):
                worse.append(f"{study.row_name(each.row)} on {each.place} ({text})")
        cells.setdefault(each.row, {})[each.place] = PageCell(text, last)
    places = list(dict.fromkeys(each.place for each in found))
    rows = tuple(
        study.table_row(row, study.row_name(row), *map(own.get, places))
        for row, own in cells.items()
    )
    notes = [
        "Percent; mean over seeds; lower is better. A domain's column is for runs that were not "
        f"trained on it, '{IN_DOMAIN}' for test images of the training domains."
    ]
    if any(each.after is not None for each in found):
        notes.append("Before → after temperature scaling, which is fitted on the training domains.")
    if worse:
        notes.append(f"Scaling made it worse: {', '.join(worse)}.")
    return PageTable("Expected calibration error", ("method", *places), rows, tuple(notes))
