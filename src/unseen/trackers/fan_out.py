"""Every record to every tracker that was asked for; one that fails is left alone."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from PIL import Image

from unseen.config import as_list
from unseen.errors import SettingsError, unknown_name
from unseen.records.result import RunResult
from unseen.reports.formats import cell_text
from unseen.reports.tables import Table
from unseen.trackers.base import Subject, Tracker, named_numbers
from unseen.trackers.outcome import TABLE_HEADER, confusion_figures, final_numbers, final_rows

_LONGEST_MESSAGE = 200


class Kind(NamedTuple):
    target: str  # "module:class"
    title: str
    packages: tuple[str, ...]


TRACKERS = {
    "wandb": Kind("unseen.trackers.wandb:WandbTracker", "Weights & Biases", ("wandb",)),
    "tensorboard": Kind(
        "unseen.trackers.tensorboard:TensorboardTracker", "TensorBoard", ("tensorboard",)
    ),
    "mlflow": Kind(
        "unseen.trackers.mlflow:MlflowTracker", "MLflow", ("mlflow", "sqlalchemy", "alembic")
    ),
}


def choose_trackers(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names as given to --log, each known and installed; said before anything is trained."""
    chosen = tuple(dict.fromkeys(as_list(names)))
    for name in chosen:
        if name not in TRACKERS:
            raise SettingsError(unknown_name("tracker", name, TRACKERS))
        missing = [package for package in TRACKERS[name].packages if not find_spec(package)]
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
        for name, image in confusion_figures(result):
            self._each(partial(_show, name=name, image=image))

    def table(self, table: Table) -> None:
        """One of the tables of a comparison."""
        header = ("method", *(column.name for column in table.columns))
        rows = [(row.name, *map(cell_text, row.cells, table.columns)) for row in table.rows]
        self._each(lambda tracker: tracker.table(table.view, header, rows))

    def close(self, finished: bool) -> None:
        self._each(lambda tracker: tracker.close(finished))

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._alive.items()):
            try:
                act(tracker)
            except Exception as error:
                del self._alive[name]
                self._warn(_farewell(name, error))
                with suppress(Exception):
                    tracker.close(finished=False)


def _build(name: str) -> Tracker:
    module, _, attribute = TRACKERS[name].target.partition(":")
    return getattr(importlib.import_module(module), attribute)()


def _show(tracker: Tracker, name: str, image: Image.Image) -> None:
    tracker.figure(name, image)


def _farewell(name: str, error: Exception) -> str:
    said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
    return (
        f"{TRACKERS[name].title} failed ({type(error).__name__}: {said}) and gets nothing more of "
        "this run; the run itself goes on, and its folder has everything"
    )
