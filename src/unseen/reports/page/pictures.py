"""What pictures.npz holds: the images that a run got wrong with the most confidence, and maps of
its features. Of several seeds the lowest is shown."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from unseen.reports.figures.charts import Cloud, point_map
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import image_sheet, picture
from unseen.reports.figures.svg import Key, Picture
from unseen.reports.page.parts import Part, Section, first_and_folded
from unseen.reports.page.studies import Run, Study
from unseen.results.files import read_arrays_if_whole
from unseen.results.folder import RunFolder, safe_name
from unseen.results.result import OTHER_CLASSES

MOST_SHEETS = 40  # a page with more would be slow to open
MOST_MAPS = 24
_LEGIBLE = 12  # classes that can be told apart by colour
Arrays = Mapping[str, np.ndarray]


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
