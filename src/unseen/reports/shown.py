"""What notebooks show of results: a table as HTML, a data frame, a figure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from unseen.optional import require
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import confusion_map
from unseen.reports.formats import cell_text
from unseen.reports.tables import Table
from unseen.results.result import VIEWS, RunResult

if TYPE_CHECKING:
    from pandas import DataFrame


class Shown(ABC):
    """A result that a notebook shows as a table, with its numbers and a figure."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return the numbers, a row of a data frame each."""

    @abstractmethod
    def plot(self) -> Figure:
        """Return a figure: a notebook shows it, `save` writes it as SVG, PDF or PNG."""

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def to_frame(self) -> "DataFrame":
        """Return the numbers as a data frame (needs pandas)."""
        return require("pandas", extra="pandas").DataFrame(self.records())


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column are names."""
    cell = Markup('<{tag} style="text-align: {side}">{text}</{tag}>')

    def line(texts: Sequence[str], tag: str) -> Markup:
        sides = ("left", *["right"] * (len(texts) - 1))
        cells = (cell.format(tag=tag, side=s, text=t) for s, t in zip(sides, texts, strict=True))
        return Markup("<tr>{}</tr>").format(Markup("").join(cells))

    body = Markup("").join(line(row, "td") for row in rows)
    caption = Markup("<caption>{}</caption>").format(title)
    return str(Markup("<table>{}{}{}</table>").format(caption, line(header, "th"), body))


def result_html(table: Table) -> str:
    """Return a table of results, with its notes."""
    header = ("method", *(column.name for column in table.columns))
    rows = [(r.name, *map(cell_text, r.cells, table.columns)) for r in table.lines]
    notes = Markup("").join(Markup("<li>{}</li>").format(note) for note in table.notes)
    return html_table(table.title, header, rows) + str(Markup("<ul>{}</ul>").format(notes))


def bars(table: Table) -> Figure:
    """Draw a bar for each method in a panel for each domain."""
    panels = []
    for place, column in enumerate(table.columns):
        if column.quantity == "difference":
            continue
        found = [(row, cell) for row in table.rows if (cell := row.cells[place]) is not None]
        rows = [
            ChartRow(
                row.name,
                number,
                () if (of := cell.estimate) is None else (Mark("", of.mean, of.half_width, "bar"),),
                cell_text(cell, column),
            )
            for number, (row, cell) in enumerate(found)
        ]
        panels.append(row_chart(column.name, rows, Axis(0, 100)))
    return Figure(table.view, table.title, "", tuple(panels))


def confusions(result: RunResult) -> Figure:
    """Draw which classes a run takes for which: on unseen domains, or else on those it knows."""
    measured = result.view(result.selection, "out_of_domain")
    view = "out_of_domain" if measured else "in_domain"
    panels = [
        confusion_map(domain, found.confusion, result.names_of(found.confusion))
        for domain, found in result.view(result.selection, view).items()
    ]
    title = f"{result.label}, {VIEWS[view].title}: true class (row) and prediction"
    return Figure("confusion", title, "", tuple(panels))
