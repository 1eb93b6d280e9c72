"""The tables, and the results at a glance: accuracy by domain, differences, worst domain, gap."""

from collections.abc import Mapping
from urllib.parse import quote

from unseen.reports.figures.axes import Axis, axis_around
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.rows import Mark, RowPanel
from unseen.reports.formats import MISSING, cell_text, estimate_text, to_csv, to_latex, to_markdown
from unseen.reports.gather import MethodKey
from unseen.reports.page.conclusion import Ranked, over_domains, ranking
from unseen.reports.page.parts import (
    Download,
    Fold,
    Note,
    PageCell,
    PageRow,
    PageTable,
    Part,
    Section,
    capital,
    number,
    page_cells,
)
from unseen.reports.page.studies import Study
from unseen.reports.published import CAUTION, by_source, published_on
from unseen.reports.tables import Row, Table, overall_by_seed
from unseen.results.result import VIEWS
from unseen.results.statistics import Estimate, paired_difference, worst_domain

Gaps = Mapping[MethodKey, Estimate | None]
Differences = dict[str, list[tuple[MethodKey, Estimate]]]
"""Rows with their difference to the baseline, by the title of a panel."""


def tables_section(study: Study) -> Section:
    tables = [table for rule in study.rules for table in study.tables(rule)]
    parts: list[Part] = [_result_table(study, table) for table in tables]
    return Section(
        "tables",
        "Results",
        "Three measurements of the same runs. In bold: ahead of all others beyond noise. "
        "Click on a column to sort by it.",
        tuple(parts) or (Note("Tables appear when the first run has finished."),),
    )


def _result_table(study: Study, table: Table) -> PageTable:
    keys = [(row.method, row.backbone) for row in table.rows]
    rows = [
        PageRow(_cells(table, row), study.tags(key), study.color(key))
        for row, key in zip(table.rows, keys, strict=True)
    ]
    foot = () if table.always_largest is None else (PageRow(_cells(table, table.always_largest)),)
    stem = f"{table.view}_{table.rule}"
    downloads = tuple(
        Download(label, stem + suffix, f"data:{kind};charset=utf-8,{quote(render(table))}")
        for label, suffix, kind, render in (
            ("CSV", ".csv", "text/csv", to_csv),
            ("Markdown", ".md", "text/markdown", to_markdown),
            ("LaTeX", ".tex", "application/x-tex", to_latex),
        )
    )
    title = VIEWS[table.view].table_title(table.metric)
    header = ("method", *(column.name for column in table.columns))
    return PageTable(title, header, tuple(rows), table.notes, table.rule, downloads, foot)


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


def published_section(study: Study) -> Section | None:
    """Returns what others have published on the same dataset. It stands only beside results of the
    same kind: one domain held out, and nothing of it seen."""
    if study.setting != "generalization" or study.number_unseen != 1:
        return None
    tables = []
    for (source, rule), numbers in by_source(published_on(study.dataset)).items():
        rows = tuple(
            PageRow(page_cells(each.method, each.backbone, PageCell(each.text, each.accuracy)))
            for each in numbers
        )
        chosen = f"chosen by rule {rule}" if rule else "selection rule not said"
        header = ("method", "backbone", "out of domain, published")
        tables.append(PageTable(f"Published: {chosen}", header, rows, (source,)))
    if not tables:
        return None
    return Section(
        "published",
        "Published numbers",
        "What papers and other toolkits report on this dataset.",
        (Note(CAUTION), Fold("Tables, by source and selection rule", tuple(tables))),
    )


def comparison_section(study: Study) -> Section | None:
    parts: list[Part] = []
    for rule in study.rules:
        table = next((each for each in study.tables(rule) if each.view == "out_of_domain"), None)
        if table is not None:
            parts.append(_bars(study, rule, table))
            parts += _differences(study, rule)
            parts += _gaps(study, rule)
    if not parts:
        return None
    return Section(
        "comparison",
        "Unseen domains, method by method",
        "Each domain was left out of training in turn and then tested on.",
        tuple(parts),
    )


def _bars(study: Study, rule: str, table: Table) -> Figure:
    numbers = study.numbers(rule, "out_of_domain")
    panels = []
    for place, column in enumerate(table.columns):
        if column.quantity == "difference":
            continue
        rows = []
        for row in table.rows:
            key, cell = (row.method, row.backbone), row.cells[place]
            overall = column.quantity == "overall"
            by_column = numbers[key]
            seeds = overall_by_seed(by_column, study.seeds) if overall else by_column[column.name]
            value = None if cell is None else cell.estimate
            marks = [] if value is None else [Mark("", value.mean, value.half_width, "bar")]
            text = cell_text(cell, column) if marks else ""
            rows.append(study.panel_row(key, marks, text, tuple(seeds.values())))
        panels.append(RowPanel(column.name, tuple(rows), study.percent))
    measure = capital(study.measure)
    about = f"{measure} on the domain that was held out, in percent."
    if len(study.seeds) > 1:
        about += " Whiskers: 95 % t-interval over seeds; dots: single seeds."
    title = f"{measure} by held-out domain"
    return Figure(f"accuracy_{rule}", title, about, tuple(panels), rule=rule)


def _differences(study: Study, rule: str) -> list[Figure]:
    """Compares each method with the baseline with the same backbone, paired by seed."""
    numbers = study.numbers(rule, "out_of_domain")
    baseline = study.rows[0][0]
    panels: Differences = {}
    for row, by_column in numbers.items():
        reference = numbers.get((baseline, row[1]))
        if row[0] == baseline or reference is None:
            continue
        pairs = {column: (reference[column], by_column[column]) for column in study.columns}
        first, second = (overall_by_seed(each, study.seeds) for each in (reference, by_column))
        for name, (ours, theirs) in {**pairs, "overall": (first, second)}.items():
            difference = paired_difference(study.layout.reference_of(row, ours), theirs)
            if difference is not None:
                panels.setdefault(name, []).append((row, difference))
    with_spread = _over_domains(study, rule, baseline) if len(study.seeds) == 1 else {}
    if with_spread or len(study.columns) == 1:
        panels.pop("overall", None)
    panels |= with_spread
    return [_difference_figure(study, rule, panels)] if panels else []


def _over_domains(study: Study, rule: str, baseline: str) -> Differences:
    """Returns the only spread that one seed has, that over held-out domains, and names it so."""
    ranked = {each.row: each for each in ranking(study, rule)}
    found = []
    for row in study.rows:
        reference = ranked.get((baseline, row[1]))
        if row in ranked and reference is not None and row[0] != baseline:
            difference = over_domains(reference, ranked[row])
            if difference is not None:
                found.append((row, difference))
    return {"overall, 95 % interval over domains": found} if found else {}


def _difference_figure(study: Study, rule: str, panels: Differences) -> Figure:
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
        rows = tuple(
            study.panel_row(
                row, [Mark("difference", each.mean, each.half_width)], _text(each, signed=True)
            )
            for row, each in differences
        )
        drawn.append(RowPanel(title, rows, axis, zero=True))
    name = f"differences_{rule}"
    return Figure(name, "Difference to the baseline", about, tuple(drawn), rule=rule)


def _gaps(study: Study, rule: str) -> list[Part]:
    """Shows the worst domain, and what is lost from in-domain to out-of-domain."""
    ranked = ranking(study, rule)
    if not ranked:
        return []
    inside = study.numbers(rule, "in_domain")
    gaps = {
        each.row: paired_difference(each.by_seed, overall_by_seed(inside[each.row], study.seeds))
        for each in ranked
    }
    return [_gap_figure(study, rule, ranked, gaps), _gap_table(study, rule, ranked, gaps)]


def _gap_table(study: Study, rule: str, ranked: list[Ranked], gaps: Gaps) -> PageTable:
    rows = []
    for each in ranked:
        domain, worst = worst_domain(each.by_column)
        gap = gaps[each.row]
        numbers = (
            _cell(each.overall),
            PageCell(f"{worst:.1f} ({domain})", worst),
            number(None if gap is None else each.overall.mean + gap.mean, ".1f"),
            None if gap is None else _cell(gap),
        )
        rows.append(study.table_row(each.row, each.name, *numbers))
    header = ("method", "out of domain", "worst unseen domain", "in domain", "gap (in − out)")
    note = "Percent; over the seeds that all methods have; the gap is paired by seed."
    return PageTable("Worst domain and gap", header, tuple(rows), (note,), rule)


def _gap_figure(study: Study, rule: str, ranked: list[Ranked], gaps: Gaps) -> Figure:
    dots, worst_bars, gap_bars = [], [], []
    for each in ranked:
        gap = gaps[each.row]
        marks = [Mark("out of domain", each.overall.mean)]
        if gap is not None:
            marks.append(Mark("in domain", each.overall.mean + gap.mean, look="hollow"))
            lost = Mark("gap", gap.mean, gap.half_width, "bar")
            gap_bars.append(study.panel_row(each.row, [lost], _text(gap)))
        domain, worst = worst_domain(each.by_column)
        lowest = Mark(domain, worst, look="bar")
        worst_bars.append(study.panel_row(each.row, [lowest], f"{worst:.1f} {domain}"))
        dots.append(study.panel_row(each.row, marks))
    measured = axis_around((mark.value for row in dots for mark in row.marks), study.percent.label)
    panels = [RowPanel("in domain and out of domain", tuple(dots), measured)]
    if gap_bars:
        ends = (m.value + (m.half_width or 0) for row in gap_bars for m in row.marks)
        axis = Axis(0, max(*ends, 1.0) * 1.05, "percentage points")
        panels.append(RowPanel("gap: in minus out", tuple(gap_bars), axis))
    panels.append(RowPanel("worst unseen domain", tuple(worst_bars), study.percent))
    about = "Hollow: held-out images of the training domains. Filled: unseen domains. The line "
    about += "between them is the price of a domain that was not trained on."
    return Figure(f"gap_{rule}", "Gap and worst domain", about, tuple(panels), rule=rule)


def _cell(value: Estimate) -> PageCell:
    return PageCell(_text(value), value.mean)


def _text(value: Estimate, signed: bool = False) -> str:
    return estimate_text(value, signed=signed).replace("-", "−")
