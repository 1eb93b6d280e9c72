"""Every record to every tracker that was asked for; one that fails is left alone."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any

from unseen.errors import SettingsError
from unseen.reports.figures.svg import Drawing
from unseen.reports.formats import cell_text
from unseen.reports.tables import Table
from unseen.reports.trackers.base import Subject, Tracker, named_numbers
from unseen.reports.trackers.outcome import (
    TABLE_HEADER,
    confusion_drawings,
    final_numbers,
    final_rows,
)
from unseen.results.result import RunResult
from unseen.settings import catalog
from unseen.settings.experiment import as_list

_LONGEST_MESSAGE = 200


def choose_trackers(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names as given to --log, each known and installed: checked before anything is trained."""
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
    """Nothing here raises what a tracker raises: the record on disk is what counts."""

    def __init__(self, names: Sequence[str], subject: Subject, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._alive = {name: _build(name) for name in names}
        self._each(lambda tracker: tracker.start(subject))

    def record(self, record: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""
        values = named_numbers(record)
        self._each(lambda tracker: tracker.numbers(record["step"], values))

    def result(self, result: RunResult) -> None:
        """Numbers, a table and figures."""
        values, rows = final_numbers(result), final_rows(result)
        self._each(lambda tracker: tracker.numbers(result.steps, values))
        self._each(lambda tracker: tracker.table("result", TABLE_HEADER, rows))
        for name, drawing in confusion_drawings(result):
            self._each(partial(_show, name=name, drawing=drawing))

    def table(self, table: Table) -> None:
        """One of the tables of a comparison."""
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


def _build(name: str) -> Tracker:
    return catalog.load("tracker", name)()


def _failed(name: str, error: Exception) -> str:
    title = catalog.TRACKERS[name].description if name in catalog.TRACKERS else name
    said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
    return (
        f"{title} failed ({type(error).__name__}: {said}) and gets nothing more from this run; "
        "training continues, and the run's folder has everything"
    )
