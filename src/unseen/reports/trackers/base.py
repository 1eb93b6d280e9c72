"""The contract of a tracker: a service that people already watch their runs with."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from PIL import Image

from unseen.reports.markdown import escaped, pipe_table
from unseen.settings.recipes import flattened


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


def named_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """A line of metrics.jsonl as a tracker shows it; what is not a number stays behind."""
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


def to_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """For trackers that show text; names may be anything."""
    return pipe_table(header, [list(map(escaped, row)) for row in rows]) + "\n"
