"""Where the mistakes are: by class, as confusion matrices, as images with what the model looked at,
and what confidence is worth; and maps of features. Of several seeds, pictures are of the lowest."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from statistics import fmean

import numpy as np

from unseen.reports.figures.charts import Axis, Cloud, Line, curve_chart, point_map
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import (
    MOST_CLASSES,
    confusion_map,
    heat_map,
    image_sheet,
    number_texts,
    picture,
    shares,
)
from unseen.reports.figures.svg import Key, Picture
from unseen.reports.page.parts import Fold, PageCell, PageTable, Part, Section, first_and_folded
from unseen.reports.page.studies import Run, Study
from unseen.reports.tables import MethodKey
from unseen.results.files import read_arrays_if_whole
from unseen.results.folder import RunFolder, safe_name
from unseen.results.result import OTHER_CLASSES, DomainResult, RunResult

IN_DOMAIN = "in domain"
MOST_SHEETS = 40  # a page with more would be slow to open
MOST_MAPS = 24
_LEGIBLE = 12  # classes that can be told apart by colour
_IN_ORDER = 30  # classes that a table of class accuracies has room for
_MOST_WEAK = 8  # rows of the table of the weakest classes
_MOST_CONFUSIONS = 8  # of a method on a domain that are listed where classes are many
_MOST_CELLS = 30_000  # of all matrices under a rule: a page with more would be slow to open
Arrays = Mapping[str, np.ndarray]
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


def _calibration(study: Study, rule: str) -> Iterator[Part]:
    """Lists the errors before and after scaling, names those that scaling made larger, and draws
    accuracy against confidence."""
    lines: dict[str, list[Line]] = {}
    cells: dict[MethodKey, dict[str, PageCell]] = {}
    worse: list[str] = []
    scaled = False
    for place, row, runs in measured(study, rule):
        records = [each.calibration for _, domains in runs for each in domains]
        if len({len(each.images) for each in records}) != 1:
            continue
        totals = np.sum([(e.images, e.confidence, e.correct) for e in records], axis=0)
        bins = [(sure / n, correct / n, int(n)) for n, sure, correct in totals.T if n]
        last = fmean(fmean(e.calibration_error for e in own) for _, own in runs if own)
        name, text = study.row_name(row), f"{100 * last:.1f}"
        points, images = tuple(each[:2] for each in bins), tuple(n for *_, n in bins)
        label, tags = f"{name}, ECE {text} %", study.tags(row)
        line = Line(label, study.color(row), points, tags=tags, images=images)
        lines.setdefault(place, []).append(line)
        after = [[e.calibrated_error for e in own if e.calibrated] for _, own in runs]
        if known := [fmean(own) for own in after if own]:  # pyright: ignore[reportArgumentType]
            before, last, scaled = last, fmean(known), True
            text += f" → {100 * last:.1f}"
            if round(100 * last, 1) > round(100 * before, 1):
                worse.append(f"{name} on {place} ({text})")
        cells.setdefault(row, {})[place] = PageCell(text, last)
    if not lines:
        return
    notes = [
        "Percent; mean over seeds; lower is better. A domain's column is for runs that were not "
        f"trained on it, '{IN_DOMAIN}' for test images of the training domains."
    ]
    if scaled:
        notes.append("Before → after temperature scaling, which is fitted on the training domains.")
    if worse:
        notes.append(f"Scaling made it worse: {', '.join(worse)}.")
    rows = [study.table_row(r, study.row_name(r), *map(own.get, lines)) for r, own in cells.items()]
    header = ("method", *lines)
    yield PageTable("Expected calibration error", header, tuple(rows), tuple(notes))
    x, y = Axis(0, 1, "confidence"), Axis(0, 1, "accuracy")
    panels = [curve_chart(place, own, x, y, True, dots=True) for place, own in lines.items()]
    about = (
        "Accuracy against confidence before temperature scaling, in 15 bins; the larger a dot, the "
        "more images. On the dotted line confidence is honest, below it the model is too sure."
    )
    yield Figure("calibration", "Calibration", about, tuple(panels), study.legend())


def mistake_sheets(study: Study) -> list[Part]:
    """Returns one sheet for each method and held-out domain, the least accurate first."""
    runs = study.first_runs([run for run in study.runs if run.result is not None])
    runs.sort(key=lambda run: (run.result and run.result.mean(run.rule, "out_of_domain")) or 0.0)
    figures = [figure for run in runs[:MOST_SHEETS] for figure in _sheets(study, run)]
    sheets = first_and_folded("Mistakes of other models", figures)
    if len(runs) > MOST_SHEETS:
        sheets.append(f"Mistakes of {len(runs) - MOST_SHEETS} more runs are not shown.")
    return sheets


def _sheets(study: Study, run: Run) -> Iterator[Figure]:
    arrays = read_arrays_if_whole(run.folder.pictures)
    if "mistakes/images" not in arrays or run.result is None:
        return
    looked = " Below each image: where the model looked." * ("mistakes/heat" in arrays)
    for number in np.unique(arrays["mistakes/domain"]):
        chosen = np.flatnonzero(arrays["mistakes/domain"] == number)
        classes = (*run.result.classes, OTHER_CLASSES)
        domain = str(arrays["domains"][number])
        yield Figure(
            f"mistakes_{safe_name(run.label)}_{safe_name(run.backbone)}_{safe_name(domain)}",
            f"Most confident mistakes on {domain}: {study.row_name(run.row)}, seed {run.seed}",
            f"True class → the model's prediction and its confidence. Rule: {run.rule}.{looked}",
            (image_sheet("", [_picture(arrays, int(row), classes) for row in chosen]),),
            wide=True,
        )


def mistakes(run: RunFolder, classes: Sequence[str], true: int, predicted: int) -> list[Picture]:
    """Returns the most confident mistakes of a run that took one class for another one."""
    arrays = read_arrays_if_whole(run.pictures)
    if "mistakes/images" not in arrays:
        return []
    pair = (arrays["mistakes/true"] == true) & (arrays["mistakes/predicted"] == predicted)
    return [_picture(arrays, int(row), classes) for row in np.flatnonzero(pair)]


def _picture(arrays: Arrays, row: int, classes: Sequence[str]) -> Picture:
    true = classes[arrays["mistakes/true"][row]]
    predicted = classes[arrays["mistakes/predicted"][row]]
    confidence = float(arrays["mistakes/confidence"][row])
    caption = f"{true} → {predicted} {100 * confidence:.0f}\N{NO-BREAK SPACE}%"
    name = arrays["mistakes/name"][row]
    description = f"{name}: {true}, predicted as {predicted} with {confidence:.1%} confidence"
    heat = arrays["mistakes/heat"][row] / 255 if "mistakes/heat" in arrays else None
    return picture(arrays["mistakes/images"][row], caption, description, heat)


def features_section(study: Study) -> Section:
    study = study.drawn
    figures = (figure for run in study.first_runs(study.runs) for figure in _maps(study, run))
    return Section(
        "features",
        "Embedding maps",
        "Inputs of the last layer, by their two main axes (PCA). Hollow: images of the unseen "
        "domain. A method that generalises puts an unseen image next to its class, not next to its "
        "domain.",
        tuple(first_and_folded("Maps of other models", list(islice(figures, MOST_MAPS)))),
    )


def _maps(study: Study, run: Run) -> Iterator[Figure]:
    arrays = read_arrays_if_whole(run.folder.pictures)
    if "features/values" not in arrays or run.result is None:
        return
    places = feature_map(arrays["features/values"].astype(np.float64))
    labels, own = arrays["features/label"], arrays["features/domain"]
    classes = (*run.result.classes, OTHER_CLASSES)
    classes = classes[: max(len(run.result.classes), int(labels.max()) + 1)]
    by_domain = [
        Cloud(name, study.domain_color(name), places[own == d], name in run.unseen_domains)
        for d, name in enumerate(map(str, arrays["domains"]))
        if name in study.domains and (own == d).any()
    ]
    unseen = np.isin(arrays["domains"][own], run.unseen_domains)
    by_class = [
        Cloud(f"{classes[c]}{', unseen domain' * hollow}", c % 12, places[chosen], hollow)
        for c in np.unique(labels)
        for hollow in (False, True)
        if (chosen := (labels == c) & (unseen == hollow)).any()
    ]
    domains = tuple(Key(c.label, c.color, "hollow" if c.hollow else "dot") for c in by_domain)
    named = tuple(Key(name, c % 12, "dot") for c, name in enumerate(classes))
    yield Figure(
        f"features_{safe_name(run.label)}_{safe_name(run.backbone)}_{safe_name(run.column)}",
        f"{study.row_name(run.row)}, {run.column} unseen, seed {run.seed}",
        "",
        (
            point_map("coloured by domain", by_domain, domains),
            point_map("coloured by class", by_class, named if len(named) <= _LEGIBLE else ()),
        ),
    )


def feature_map(values: np.ndarray) -> np.ndarray:
    """Puts the first two of the principal components that a run stores into the unit square."""
    places = np.pad(values, ((0, 0), (0, 1)))[:, :2]
    low, high = places.min(axis=0), places.max(axis=0)
    span = float((high - low).max()) or 1.0
    return 0.5 + (places - (low + high) / 2) / span
