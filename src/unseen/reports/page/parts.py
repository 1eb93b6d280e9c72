"""What sections of the page are made of; the templates know how each part looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from unseen.reports.figures.figure import Figure
from unseen.reports.formats import MISSING, cell_text, to_csv, to_latex, to_markdown
from unseen.reports.tables import Row, Table
from unseen.results.result import VIEWS


class PageCell(NamedTuple):
    text: str
    value: float | str | None = None
    """What the column is sorted by; numbers are set to the right."""
    best: bool = False
    tip: str = ""


class PageRow(NamedTuple):
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
    downloads: tuple[Download, ...] = ()
    rule: str | None = None
    foot: tuple[PageRow, ...] = ()
    """Rows that stay below the others however these are sorted."""


@dataclass(frozen=True)
class Note:
    text: str
    rule: str | None = None


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
    rule: str | None = None


Part = Figure | PageTable | Note | Code | Fold


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    lead: str
    parts: tuple[Part, ...]


def result_table(table: Table, colors: Sequence[tuple[int, tuple[str, ...]]]) -> PageTable:
    """A table of results with its downloads; `colors` are colour and tags of each row."""
    rows = [
        PageRow(_cells(table, row), tags, color)
        for row, (color, tags) in zip(table.rows, colors, strict=True)
    ]
    foot = () if table.always_largest is None else (table.always_largest,)
    return PageTable(
        VIEWS[table.view].table_title(table.metric),
        ("method", *(column.name for column in table.columns)),
        tuple(rows),
        table.notes,
        _downloads(table),
        table.rule,
        tuple(PageRow(_cells(table, row)) for row in foot),
    )


def _cells(table: Table, row: Row) -> tuple[PageCell, ...]:
    cells = [PageCell(row.name, row.name)]
    for column, cell in zip(table.columns, row.cells, strict=True):
        if cell is None or cell.estimate is None:
            cells.append(PageCell("" if cell is None else MISSING))
            continue
        tip = f"{row.name}, {column.name}"
        if row is not table.always_largest:
            tip += f": n = {cell.estimate.n} of {cell.planned}"
        text = cell_text(cell, column).replace("-", "−")
        cells.append(PageCell(text, cell.estimate.mean, cell.best, tip))
    return tuple(cells)


def _downloads(table: Table) -> tuple[Download, ...]:
    stem = f"{table.view}_{table.rule}"
    kinds = {
        "CSV": (".csv", "text/csv", to_csv),
        "Markdown": (".md", "text/markdown", to_markdown),
        "LaTeX": (".tex", "application/x-tex", to_latex),
    }
    return tuple(
        Download(label, stem + suffix, f"data:{kind};charset=utf-8,{quote(render(table))}")
        for label, (suffix, kind, render) in kinds.items()
    )
