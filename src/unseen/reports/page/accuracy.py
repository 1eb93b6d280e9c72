"""The tables, and the results at a glance: accuracy by domain, differences, worst domain, gap."""

from typing import TypeVar
from urllib.parse import quote

from unseen.reports.figures.charts import Axis, Mark, axis_around, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.formats import MISSING, cell_text, estimate_text, to_csv, to_latex, to_markdown
from unseen.reports.gather import OVERALL, MethodKey
from unseen.reports.page.conclusion import over_domains, ranking
from unseen.reports.page.parts import (
    PageCell,
    PageRow,
    PageTable,
    Part,
    Section,
    capital,
    first_and_folded,
    number,
)
from unseen.reports.page.studies import Study
from unseen.reports.tables import Row, Table, notes_once
from unseen.results.result import VIEWS
from unseen.results.statistics import Estimate, paired_difference, worst_domain

_Item = TypeVar("_Item")
_FORMATS = (
    ("CSV", ".csv", "text/csv", to_csv),
    ("Markdown", ".md", "text/markdown", to_markdown),
    ("LaTeX", ".tex", "application/x-tex", to_latex),
)


def tables_section(study: Study) -> Section:
    parts: list[Part] = []
    for rule in study.rules:
        tables = study.tables(rule)
        noted = zip(tables, notes_once(tables), strict=True)
        shown = [_result_table(study, *each) for each in noted]
        parts += first_and_folded("In domain and known domain", shown, rule)
    return Section(
        "tables",
        "Results",
        "Three measurements of the same runs. In bold: ahead of all others beyond noise. "
        "Click on a column to sort by it.",
        tuple(parts) or ("Tables appear when the first run has finished.",),
    )


def _result_table(study: Study, table: Table, shown: Table) -> PageTable:
    """Shows a table with some of its notes; as a file it has them all. The overall and the
    difference come first: a phone has no room for all domains."""
    domains = sum(column.quantity not in ("overall", "difference") for column in table.columns)
    foot = () if table.always_largest is None else (table.always_largest,)
    rows, last = (
        [_overall_first(_cells(table, row), domains) for row in lines]
        for lines in (table.rows, foot)
    )
    stem = f"{table.view}_{table.rule}"
    downloads = tuple(
        (label, stem + suffix, f"data:{kind};charset=utf-8,{quote(render(table))}")
        for label, suffix, kind, render in _FORMATS
    )
    header = ("method", *(column.name for column in table.columns))
    return PageTable(
        VIEWS[table.view].table_title(table.metric),
        _overall_first(header, domains),
        tuple(
            PageRow(cells, study.tags(row.key), study.color(row.key))
            for cells, row in zip(rows, table.rows, strict=True)
        ),
        shown.notes,
        table.rule,
        downloads,
        tuple(map(PageRow, last)),
    )


def _overall_first(cells: tuple[_Item, ...], domains: int) -> tuple[_Item, ...]:
    return cells[:1] + cells[1 + domains :] + cells[1 : 1 + domains]


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
    parts: list[Part] = []
    for rule in study.rules:
        table = next((each for each in study.tables(rule) if each.view == "out_of_domain"), None)
        if table is not None:
            parts += [_bars(study, rule, table), *_differences(study, rule), *_gaps(study, rule)]
    return Section(
        "comparison",
        "Unseen domains, method by method",
        "Each domain was left out of training in turn and then tested on.",
        tuple(parts),
    )


def _bars(study: Study, rule: str, table: Table) -> Figure:
    numbers = study.numbers(rule, "out_of_domain")
    panels = []
    for place, name in ((len(study.columns), OVERALL), *enumerate(study.columns)):
        column, rows = table.columns[place], []
        for row in table.rows:
            cell = row.cells[place]
            value = None if cell is None else cell.estimate
            marks = [] if value is None else [Mark("", value.mean, value.half_width, "bar")]
            text = cell_text(cell, column) if marks else ""
            points = tuple(numbers[row.key][name].values())
            rows.append(study.chart_row(row.key, marks, text, points))
        panels.append(row_chart(column.name, rows, study.percent))
    measure = capital(study.measure)
    about = f"{measure} on the domain that was held out, in percent."
    if len(study.seeds) > 1:
        about += " Whiskers: 95 % t-interval over seeds; dots: single seeds."
    title = f"{measure} by held-out domain"
    return Figure(f"accuracy_{rule}", title, about, tuple(panels), rule=rule)


def _differences(study: Study, rule: str) -> list[Figure]:
    """Compares each method with the baseline with the same backbone, paired by seed. With one seed,
    the spread over held-out domains is the only one that there is, and is named so."""
    numbers = study.numbers(rule, "out_of_domain")
    ranked = {each.row: each for each in ranking(study, rule)}
    baseline = study.rows[0][0]
    panels: dict[str, list[tuple[MethodKey, Estimate | None]]] = {}
    for row, by_column in numbers.items():
        reference = (baseline, row[1])
        if row == reference or reference not in numbers:
            continue
        for name in (OVERALL, *study.columns):
            own = by_column[name]
            difference = study.layout.difference(row, numbers[reference][name], own)
            panels.setdefault(name or "overall", []).append((row, difference))
        if len(study.seeds) == 1 and {row, reference} <= set(ranked):
            spread = over_domains(ranked[reference], ranked[row])
            title = "overall, 95 % interval over domains"
            panels.setdefault(title, []).append((row, spread))

    known = {
        title: [(row, each) for row, each in rows if each is not None]
        for title, rows in panels.items()
    }
    if len(study.columns) == 1 or known.get("overall, 95 % interval over domains"):
        known.pop("overall", None)
    drawn = {title: rows for title, rows in known.items() if rows}
    return [_difference_figure(study, rule, drawn)] if drawn else []


def _difference_figure(
    study: Study, rule: str, panels: dict[str, list[tuple[MethodKey, Estimate]]]
) -> Figure:
    everything = [each for rows in panels.values() for _, each in rows]
    reach = max(abs(each.mean) + (each.half_width or 0) for each in everything)
    limit = 1.3 * max(max(abs(each.mean) for each in everything), 1.0)
    most = min(max(reach, 1.0) * 1.05, 4 * limit)
    axis = Axis(-most, most, "percentage points")
    about = f"Difference to {study.rows[0][0]}, in percentage points, paired by seed."
    if len(study.seeds) == 1:
        about += " One seed, so a single domain has no interval."
    else:
        about += " An interval that does not touch the line in the middle is beyond the noise."
    drawn = []
    for title, differences in panels.items():
        rows = [
            study.chart_row(
                row, [Mark("difference", each.mean, each.half_width)], _text(each, signed=True)
            )
            for row, each in differences
        ]
        drawn.append(row_chart(title, rows, axis, zero=True))
    name = f"differences_{rule}"
    return Figure(name, "Difference to the baseline", about, tuple(drawn), rule=rule)


def _gaps(study: Study, rule: str) -> list[Part]:
    """Shows the worst domain, and what is lost from in-domain to out-of-domain, as a figure and as
    a table."""
    inside = study.numbers(rule, "in_domain")
    dots, worst_bars, gap_bars, lines = [], [], [], []
    for each in ranking(study, rule):
        gap = paired_difference(each.by_seed, inside[each.row][OVERALL])
        within = None if gap is None else each.overall.mean + gap.mean
        marks = [Mark("out of domain", each.overall.mean)]
        if gap is not None and within is not None:
            marks.append(Mark("in domain", within, look="hollow"))
            lost = Mark("gap", gap.mean, gap.half_width, "bar")
            gap_bars.append(study.chart_row(each.row, [lost], _text(gap)))
        dots.append(study.chart_row(each.row, marks))
        domain, worst = worst_domain(each.by_column)
        lowest = Mark(domain, worst, look="bar")
        worst_bars.append(study.chart_row(each.row, [lowest], f"{worst:.1f} {domain}"))
        cells = (
            PageCell(_text(each.overall), each.overall.mean),
            PageCell(f"{worst:.1f} ({domain})", worst),
            number(within, ".1f"),
            None if gap is None else PageCell(_text(gap), gap.mean),
        )
        lines.append(study.table_row(each.row, each.name, *cells))
    if not lines:
        return []
    measured = axis_around((mark.value for row in dots for mark in row.marks), study.percent.label)
    panels = [row_chart("in domain and out of domain", dots, measured)]
    if gap_bars:
        ends = (m.value + (m.half_width or 0) for row in gap_bars for m in row.marks)
        axis = Axis(0, max(*ends, 1.0) * 1.05, "percentage points")
        panels.append(row_chart("gap: in minus out", gap_bars, axis))
    panels.append(row_chart("worst unseen domain", worst_bars, study.percent))
    about = "Hollow: held-out images of the training domains. Filled: unseen domains. The line "
    about += "between them is the price of a domain that was not trained on."
    header = ("method", "out of domain", "worst unseen domain", "in domain", "gap (in − out)")
    note = "Percent; over the seeds that all methods have; the gap is paired by seed."
    return [
        Figure(f"gap_{rule}", "Gap and worst domain", about, tuple(panels), rule=rule),
        PageTable("Worst domain and gap", header, tuple(lines), (note,), rule),
    ]


def _text(value: Estimate, signed: bool = False) -> str:
    return estimate_text(value, signed=signed).replace("-", "−")
