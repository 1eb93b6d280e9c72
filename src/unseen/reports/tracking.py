"""The contract of a tracker, and every record sent to each tracker that was asked for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from PIL import Image

from unseen.errors import SettingsError
from unseen.reports.figures.grids import MOST_CLASSES, heat_map, number_texts, shares
from unseen.reports.figures.svg import Drawing
from unseen.reports.formats import cell_text, result_table
from unseen.reports.tables import Table
from unseen.results.folder import safe_name
from unseen.results.result import RunResult
from unseen.settings import catalog
from unseen.settings.experiment import METRICS, as_list
from unseen.settings.recipes import flattened

_LONGEST_MESSAGE = 200
_CELL, _LABELS, _FEWEST = 34, 110, 8  # pixels; and the number of columns that a title needs


class Subject(NamedTuple):
    """What a tracker files things under. The same identity continues what was filed before."""

    name: str
    identity: str
    settings: Mapping[str, Any]
    home: Path
    """The folder of all runs: trackers keep their local files there, beside the runs."""


class Tracker(Protocol):
    """Any call may raise: the tracker then gets nothing more, and training continues.

    After `start`, all numbers of the run so far arrive again, in order: a tracker that still has
    them from before an interruption leaves them out.
    """

    packages: ClassVar[tuple[str, ...]]
    """What has to be installed."""

    def start(self, subject: Subject) -> None: ...

    def numbers(self, step: int, values: Mapping[str, float]) -> None: ...

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def figure(self, name: str, image: Image.Image) -> None: ...

    def close(self, finished: bool) -> None: ...


def choose_trackers(names: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names given to --log, each known and installed, before anything is trained."""
    chosen = tuple(dict.fromkeys(as_list(names)))
    for name in chosen:
        tracker: type[Tracker] = catalog.load("tracker", name)
        needed = (*tracker.packages, "typst")  # draws the confusion matrices
        missing = [package for package in needed if not find_spec(package)]
        if missing:
            raise SettingsError(
                f"--log {name} needs the package '{missing[0]}', which is not installed: "
                f"pip install 'unseen[{name}]'"
            )
    return chosen


class Trackers:
    """Sends to all trackers. Nothing here raises what a tracker raises: one that fails is left
    alone, and the record on disk is what counts."""

    def __init__(self, names: Sequence[str], subject: Subject, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._alive: dict[str, Tracker] = {name: catalog.load("tracker", name)() for name in names}
        self._each(lambda tracker: tracker.start(subject))

    def record(self, record: Mapping[str, Any]) -> None:
        """Send a line of metrics.jsonl."""
        values = named_numbers(record)
        self._each(lambda tracker: tracker.numbers(record["step"], values))

    def result(self, result: RunResult) -> None:
        """Send final numbers, a table and a confusion matrix of each unseen domain."""
        values = final_numbers(result)
        header, rows = result_table(result.under(result.selection).views, tuple(METRICS))
        self._each(lambda tracker: tracker.numbers(result.steps, values))
        self._each(lambda tracker: tracker.table("result", header, rows))
        for domain, each in result.view(result.selection, "out_of_domain").items():
            drawing = draw_confusion(each.confusion, result.names_of(each.confusion))
            name = f"confusion-{safe_name(domain)}"
            self._each(partial(_show, name=name, drawing=drawing))

    def table(self, table: Table) -> None:
        """Send one of the tables of a comparison."""
        header = ("method", *(column.name for column in table.columns))
        rows = [(row.name, *map(cell_text, row.cells, table.columns)) for row in table.lines]
        self._each(lambda tracker: tracker.table(table.view, header, rows))

    def close(self, finished: bool) -> None:
        self._each(lambda tracker: tracker.close(finished))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._alive.items()):
            try:
                act(tracker)
            except Exception as error:
                del self._alive[name]
                self._warn(_failed(name, error))
                with suppress(Exception):
                    tracker.close(finished=False)


def _show(tracker: Tracker, name: str, drawing: Drawing) -> None:
    from unseen.reports.figures.figure import to_picture

    tracker.figure(name, to_picture(drawing))


def _failed(name: str, error: Exception) -> str:
    title = catalog.TRACKERS[name].description if name in catalog.TRACKERS else name
    said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
    return (
        f"{title} failed ({type(error).__name__}: {said}) and gets nothing more from this run; "
        "training continues, and the run's folder has everything"
    )


def named_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns a line of metrics.jsonl as a tracker shows it; what is not a number stays behind."""
    together = {
        name if isinstance(value, Mapping) else f"train/{name}": value
        for name, value in record.items()
        if name != "step"
    }
    return {
        name: value
        for name, value in flattened(together, "/").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def final_numbers(result: RunResult) -> dict[str, float]:
    """Returns, by view and domain under the run's own selection rule, calibration error, accuracy,
    and the metric that its checkpoint was chosen by."""
    return dict(_final_numbers(result))


def _final_numbers(result: RunResult) -> Iterator[tuple[str, float]]:
    for view, domains in result.under(result.selection).views.items():
        for domain, each in domains.items():
            yield f"final/{view}/{domain}/ece", each.calibration_error
            if each.calibrated_error is not None:
                yield f"final/{view}/{domain}/ece after scaling", each.calibrated_error
        for metric in dict.fromkeys(("accuracy", result.metric)) if domains else ():
            name = METRICS[metric]
            values = {domain: each.measures[metric] for domain, each in domains.items()}
            yield from ((f"final/{view}/{domain}/{name}", v) for domain, v in values.items())
            yield f"final/{view}/mean {name}", fmean(values.values())
            yield f"final/{view}/worst {name}", min(values.values())


def draw_confusion(counts: np.ndarray, classes: Sequence[str]) -> Drawing:
    """Draws counts, the darker, the larger their share of the true class. Of many classes, it shows
    those that are confused most: a picture of all would be too large to send and to read."""
    wrong = counts - np.diag(counts.diagonal())
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)  # as true or predicted class
    chosen = np.sort(np.argsort(-mistakes, kind="stable")[:MOST_CLASSES])
    names = tuple(str(classes[number]) for number in chosen)
    shown = np.ix_(chosen, chosen)
    title = "predicted"
    if len(chosen) < len(classes):
        title = f"predicted ({len(chosen)} most confused of {len(classes)} classes)"
    texts = number_texts(counts[shown], "d")
    width = _LABELS + _CELL * max(len(names), _FEWEST)
    return heat_map("", names, names, shares(counts)[shown], texts, "true", title, width)
