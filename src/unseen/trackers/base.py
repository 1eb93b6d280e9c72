"""The contract of a tracker: a service that people already watch their runs with."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from PIL import Image


class Subject(NamedTuple):
    """What a tracker files things under. The same identity continues what was filed before."""

    name: str
    identity: str
    settings: Mapping[str, Any]
    home: Path
    """The folder of all runs: trackers keep their local files there, beside the runs."""


class Tracker(Protocol):
    """Anything may raise: a tracker that does is left alone, and training goes on.

    After `start`, all numbers of the run so far arrive again, in order: a tracker that still has
    them from before an interruption leaves them out.
    """

    def start(self, subject: Subject) -> None: ...

    def numbers(self, step: int, values: Mapping[str, float]) -> None: ...

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def figure(self, name: str, image: Image.Image) -> None: ...

    def close(self, finished: bool) -> None: ...


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested settings or statistics, by path: `fc/kept/photo/soft`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}/{key}" if name else str(key))
    else:
        yield name, value


def named_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """A line of metrics.jsonl as a tracker shows it; what is not a number stays behind."""
    together = {
        name if isinstance(value, Mapping) else f"train/{name}": value
        for name, value in record.items()
        if name != "step"
    }
    return {
        name: value
        for name, value in flatten(together)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def to_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table, whatever the names in it are."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
