"""The tables, and the results at a glance: accuracy by domain, differences, worst domain, gap."""

from collections.abc import Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from unseen.reports.figures.charts import Axis, ChartRow, Mark, axis_around, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.formats import FILES, MISSING, cell_text, estimate_text
from unseen.reports.page.conclusion import over_domains, ranking
from unseen.reports.page.parts import (
    Fold,
    PageCell,
    PageRow,
    PageTable,
    Part,
    Section,
    capital,
    first_and_folded,
    number,
)
from unseen.reports.page.studies import MOST_DRAWN, Study
from unseen.reports.shown import bar_panels
from unseen.reports.tables import OVERALL, Column, MethodKey, Row, Table, notes_once
from unseen.results.result import VIEWS
from unseen.results.statistics import Estimate, paired_difference, worst_domain

_Item = TypeVar("_Item")


def tables_section(study: Study) -> Section:
    return Section(
        "tables",
        "Results",
        "Three measurements of the same runs. In bold: ahead of all others beyond noise.",
        study.under_rules(_tables) or ("Tables appear when the first run has finished.",),
    )


def _tables(study: Study, rule: str) -> Iterator[Part]:
    tables = study.tables(rule)
    noted = zip(tables, notes_once(tables), strict=True)
    shown = [_result_table(study, *each) for each in noted]
    yield from first_and_folded("In domain and known domain", shown)


def _result_table(study: Study, table: Table, shown: Table) -> PageTable:
    """Shows a table with some of its notes; as a file it has them all. The overall and the
    difference come first: a phone has no room for all domains."""
    domains = sum(column.quantity not in ("overall", "difference") for column in table.columns)

    def overall_first(cells: tuple[_Item, ...]) -> tuple[_Item, ...]:
        return cells[:1] + cells[1 + domains :] + cells[1 : 1 + domains]

    downloads = tuple(
        (label, f"{table.view}_{table.rule}{suffix}", f"data:{kind},{quote(render(table))}")
        for suffix, (label, kind, render) in FILES.items()
    )
    largest = table.always_largest
    return PageTable(
        VIEWS[table.view].table_title(table.metric),
        overall_first(("method", *(column.name for column in table.columns))),
        tuple(study.table_row(row.key, *overall_first(_cells(table, row))) for row in table.rows),
        shown.notes,
        downloads=downloads,
        foot=(PageRow(overall_first(_cells(table, largest))),) if largest else (),
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


def comparison_section(study: Study) -> Section:
    lead = "Each domain was left out of training in turn and then tested on."
    if len(study.rows) > MOST_DRAWN:
        lead += (
            f" Figures show {study.rows[0][0]} and the {MOST_DRAWN - 1} best of the other "
            f"{len(study.rows) - 1} rows; the tables above have all."
        )
    parts = study.drawn.under_rules(_comparison)
    return Section("comparison", "Unseen domains, method by method", lead, parts)


def _comparison(study: Study, rule: str) -> Iterator[Part]:
    table = next((each for each in study.tables(rule) if each.view == "out_of_domain"), None)
    if table is not None:
        yield _bars(study, rule, table)
        yield from _differences(study, rule)
        yield from _gaps(study, rule)


def _bars(study: Study, rule: str, table: Table) -> Figure:
    numbers = study.numbers(rule, "out_of_domain")

    def draw(row: Row, column: Column, marks: Sequence[Mark], text: str) -> ChartRow:
        name = OVERALL if column.quantity == "overall" else column.name
        return study.chart_row(row.key, marks, text, tuple(numbers[row.key][name].values()))

    measure = capital(study.measure)
    about = f"{measure} on the unseen domain, in percent."
    if len(study.seeds) > 1:
        about += " Whiskers: 95 % t-interval over seeds; dots: single seeds."
    panels = bar_panels(table, draw, study.percent)
    return Figure("accuracy", f"{measure} by unseen domain", about, tuple(panels))


def _differences(study: Study, rule: str) -> Iterator[Figure]:
    """Compares each method with the baseline with the same backbone, paired by seed. With one seed,
    the spread over unseen domains is the only one that there is, and is named so."""
    numbers = study.numbers(rule, "out_of_domain")
    ranked = {each.row: each for each in ranking(study, rule)}
    baseline = study.rows[0][0]
    panels: dict[str, list[tuple[MethodKey, Estimate]]] = {}
    for row, by_column in numbers.items():
        reference = (baseline, row[1])
        if row == reference or reference not in numbers:
            continue
        found = {
            name or "overall": study.layout.difference(row, numbers[reference][name], own)
            for name, own in by_column.items()
        }
        if len(study.seeds) == 1 and {row, reference} <= set(ranked):
            found["overall"] = over_domains(ranked[reference], ranked[row]) or found["overall"]
        for name, value in found.items():
            if value is not None:
                panels.setdefault(name, []).append((row, value))
    if len(study.columns) == 1:
        panels.pop("overall", None)
    if not panels:
        return
    everything = [each for rows in panels.values() for _, each in rows]
    reach = max(abs(each.mean) + (each.half_width or 0) for each in everything)
    limit = 1.3 * max(max(abs(each.mean) for each in everything), 1.0)
    most = min(max(reach, 1.0) * 1.05, 4 * limit)
    axis = Axis(-most, most, "percentage points")
    about = f"Difference to {baseline}, in percentage points, paired by seed."
    if len(study.seeds) == 1:
        about += " One seed: a domain has no interval, and that of the overall is over domains."
    else:
        about += " An interval that does not touch the line in the middle is beyond the noise."
    drawn = []
    for name in sorted(panels, key=lambda each: each != "overall"):
        rows = [
            study.chart_row(
                row, [Mark("difference", each.mean, each.half_width)], _text(each, signed=True)
            )
            for row, each in panels[name]
        ]
        drawn.append(row_chart(name, rows, axis, zero=True))
    yield Figure("differences", "Difference to the baseline", about, tuple(drawn))


def _gaps(study: Study, rule: str) -> Iterator[Part]:
    """Shows the worst domain, and what is lost from in-domain to out-of-domain, as a figure and as
    a table."""
    inside = study.numbers(rule, "in_domain")
    dots, lines = [], []
    for each in ranking(study, rule):
        gap = paired_difference(each.by_seed, inside[each.row][OVERALL])
        within = None if gap is None else each.overall.mean + gap.mean
        marks = [Mark("out of domain", each.overall.mean)]
        if within is not None:
            marks.append(Mark("in domain", within, look="hollow"))
        dots.append(study.chart_row(each.row, marks, "" if gap is None else f"{gap.mean:.1f}"))
        domain, worst = worst_domain(each.by_column)
        cells = (
            PageCell(_text(each.overall), each.overall.mean),
            PageCell(f"{worst:.1f} ({domain})", worst),
            number(within, ".1f"),
            None if gap is None else PageCell(_text(gap), gap.mean),
        )
        lines.append(study.table_row(each.row, each.name, *cells))
    if not lines:
        return
    axis = axis_around((mark.value for row in dots for mark in row.marks), study.percent.label)
    panel = row_chart("", dots, axis)
    about = "Hollow: test images of the training domains. Filled: unseen domains. The line "
    about += "between them is the price of a domain that was not trained on."
    yield Figure("gap", "From known domains to unseen ones", about, (panel,))
    header = ("method", "out of domain", "worst unseen domain", "in domain", "gap (in − out)")
    note = "Percent; over the seeds that all methods have; the gap is paired by seed."
    table = PageTable("Worst domain and gap", header, tuple(lines), (note,))
    yield Fold("Worst domain and gap, in numbers", (table,))


def _text(value: Estimate, signed: bool = False) -> str:
    return estimate_text(value, signed=signed).replace("-", "−")
