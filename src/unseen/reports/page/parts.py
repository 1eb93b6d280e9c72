"""What sections of the page are made of; the templates know how each part looks."""

from dataclasses import dataclass
from typing import NamedTuple

from unseen.reports.figures.figure import Figure
from unseen.reports.formats import MISSING


class PageCell(NamedTuple):
    text: str
    value: float | str | None = None
    """What the column is sorted by; numbers are set to the right."""
    best: bool = False
    tip: str = ""


class PageRow(NamedTuple):
    """A row is hidden with any of its `tags`; `color` is a place in the palette."""

    cells: tuple[PageCell, ...]
    tags: tuple[str, ...] = ()
    color: int | None = None


class Download(NamedTuple):
    label: str
    file: str
    address: str


@dataclass(frozen=True)
class PageTable:
    title: str
    header: tuple[str, ...]
    rows: tuple[PageRow, ...]
    notes: tuple[str, ...] = ()
    rule: str | None = None
    downloads: tuple[Download, ...] = ()
    foot: tuple[PageRow, ...] = ()
    """Rows that stay below the others however these are sorted."""


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Code:
    """Text to copy, as it is."""

    title: str
    text: str


@dataclass(frozen=True)
class Fold:
    """Parts that show when one asks for them."""

    title: str
    parts: "tuple[Part, ...]"
    open: bool = False


Part = Figure | PageTable | Note | Code | Fold


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    lead: str
    parts: tuple[Part, ...]


def page_cells(*values: PageCell | str | int | None) -> tuple[PageCell, ...]:
    return tuple(
        value if isinstance(value, PageCell) else
        PageCell(MISSING) if value is None else PageCell(str(value), value)
        for value in values
    )  # fmt: skip


def number(value: float | None, text: str) -> PageCell | None:
    """Returns a number as a cell, such as `number(0.5, ".1f")`; None stays None."""
    return None if value is None else PageCell(format(value, text), value)


def capital(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[0].upper() + text[1:]
