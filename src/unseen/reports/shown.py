"""What notebooks show of results: a table as HTML, a data frame, a figure."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from unseen.optional import require
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import confusion_map
from unseen.reports.figures.svg import Drawing
from unseen.reports.tables import OVERALL, Row, Table
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
    lines = ""
    for tag, texts in (("th", header), *(("td", row) for row in rows)):
        cells = (
            f'<{tag} style="text-align: {"right" if place else "left"}">{escape(text)}</{tag}>'
            for place, text in enumerate(texts)
        )
        lines += f"<tr>{''.join(cells)}</tr>"
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"


def result_html(table: Table) -> str:
    """Return a table of results, with its notes."""
    header, *rows = table.texts
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return f"{html_table(table.title, header, rows)}<ul>{notes}</ul>"


def bar_panels(
    table: Table, draw: Callable[[Row, str, tuple[Mark, ...], str], ChartRow], axis: Axis
) -> Iterator[Drawing]:
    """Draw a bar for each method, in a panel for the overall and one for each domain."""
    for place in (table.domains, *range(table.domains)):
        column = OVERALL if place == table.domains else table.columns[place]
        rows = []
        for row in table.rows:
            cell = row.cells[place]
            value = cell.estimate
            marks = (Mark("", value.mean, value.half_width, "bar"),) if value else ()
            rows.append(draw(row, column, marks, cell.text if marks else ""))
        yield row_chart(table.columns[place], rows, axis)


def bars(table: Table) -> Figure:
    """Draw a bar for each method in a panel for each domain."""

    def draw(row: Row, column: str, marks: tuple[Mark, ...], text: str) -> ChartRow:
        return ChartRow(row.name, table.rows.index(row), marks, text)

    panels = bar_panels(table, draw, Axis(0, 100, "%"))
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
