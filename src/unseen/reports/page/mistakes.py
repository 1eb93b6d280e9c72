"""For each unseen domain a sheet of the images that a run got wrong with the most confidence."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unseen.reports.figures.panels import Figure, Picture, SheetPanel
from unseen.reports.page.arrays import pictures
from unseen.reports.page.parts import Fold, Note, Part
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.reports.page.training import safe

MOST_SHEETS = 40  # a page with more would be slow to open


def mistake_sheets(study: Study) -> list[Part]:
    """One sheet for each method and held-out domain: the run with the lowest seed."""
    first: dict[tuple[str, tuple[str, str]], Run] = {}
    for run in sorted(study.runs, key=lambda run: run.seed):
        if run.result is not None:
            first.setdefault((run.column, run.row), run)
    ordered = [
        first[column, row]
        for column in study.columns
        for row in study.rows
        if (column, row) in first
    ]
    sheets: list[Part] = []
    for run in ordered[:MOST_SHEETS]:
        for figure in _sheets(study, run):
            sheets.append(Fold(figure.title, (figure,), open=not sheets))
    if len(ordered) > MOST_SHEETS:
        sheets.append(Note(f"Sheets of {len(ordered) - MOST_SHEETS} more runs are left out."))
    return sheets


def _sheets(study: Study, run: Run) -> Iterable[Figure]:
    arrays = pictures(run)
    if "mistakes/images" not in arrays or run.result is None:
        return
    classes = run.result.classes
    domains = [str(name) for name in arrays["domains"]]
    for number in np.unique(arrays["mistakes/domain"]):
        chosen = np.flatnonzero(arrays["mistakes/domain"] == number)
        panel = SheetPanel("", tuple(_picture(arrays, int(row), classes) for row in chosen))
        domain = domains[number]
        name = f"mistakes_{safe(run.label)}_{safe(run.backbone)}_{safe(domain)}"
        about = f"True class → what the model said, and how sure it was. Rule: {run.rule}."
        title = f"Most confident mistakes on {domain}: {study.row_name(run.row)}, seed {run.seed}"
        yield Figure(name, title, about, (panel,), wide=True)


def _picture(arrays: Mapping[str, np.ndarray], row: int, classes: Sequence[str]) -> Picture:
    true = classes[arrays["mistakes/true"][row]]
    called = classes[arrays["mistakes/predicted"][row]]
    confidence = float(arrays["mistakes/confidence"][row])
    caption = f"{true} → {called} {100 * confidence:.0f}\N{NO-BREAK SPACE}%"
    name = arrays["mistakes/name"][row]
    told = f"{name}: {true}, called {called} with {confidence:.1%} confidence"
    return Picture(arrays["mistakes/images"][row], caption, told)
