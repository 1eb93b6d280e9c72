"""The paper's three tables, from the results of finished runs under one selection rule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from unseen.reports import notes
from unseen.reports.gather import (
    BySeed,
    Expected,
    Layout,
    MethodKey,
    Numbers,
    check_results,
    common_metric,
    gather,
    gather_always_largest,
    lay_out,
)
from unseen.results.result import VIEWS, RunResult, View
from unseen.results.rules import check_rule
from unseen.results.statistics import Estimate, estimate, paired_difference
from unseen.settings.experiment import Metric

Quantity = Metric | Literal["overall", "difference"]
LARGEST_CLASS = "largest class"


class Column(NamedTuple):
    name: str
    quantity: Quantity


class Cell(NamedTuple):
    """Percent (or percentage points) over the seeds that there are, out of `planned` ones."""

    estimate: Estimate | None
    planned: int
    best: bool = False

    @property
    def complete(self) -> bool:
        return self.estimate is not None and self.estimate.n == self.planned


class Row(NamedTuple):
    """A method, and its backbone; a cell is None where the method would be compared to itself."""

    name: str
    method: str
    backbone: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Table:
    """One view of one dataset under one selection rule, by one metric; `notes` belong in every
    caption."""

    title: str
    rule: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    dataset: str
    view: View
    metric: Metric
    notes: tuple[str, ...]
    spread: Literal["half_width", "standard_error"] = "half_width"
    """What the number after ± is: half of a 95 % interval, or a standard error."""
    always_largest: Row | None = None
    """What answering with each domain's most frequent class would get, whatever the image."""

    @property
    def lines(self) -> tuple[Row, ...]:
        """All that is printed: the methods, and what each of them has to beat."""
        return (*self.rows, self.always_largest) if self.always_largest else self.rows


def build_tables(
    results: Sequence[RunResult],
    rule: str,
    expected: Expected | None = None,
    metric: Metric | None = None,
) -> list[Table]:
    """A table for each view that was measured; the first method is what others are compared to.

    `expected` sets the order, and what of it is not there yet is shown as missing; without it,
    methods and columns come in the order of `results`. `metric` shows another one than that which
    the checkpoints were chosen by, and notes say so.
    """
    check_rule(rule)
    check_results(results, rule)
    metric = metric or common_metric(results)
    layout = lay_out(results, expected or Expected())
    apart = rows_apart(results)
    tables = []
    for view in VIEWS:
        numbers = gather(results, rule, view, layout, metric)
        if any(by_seed for by_column in numbers.values() for by_seed in by_column.values()):
            largest = gather_always_largest(results, rule, view, metric)
            kind = (results[0].dataset, view, rule, metric)
            tables.append(_build(kind, layout, numbers, apart, largest))
    first = notes.selection_notes(results, rule, metric)
    about_runs = (
        notes.upper_bound_note(results, rule),
        notes.adaptation_note(results),
        notes.unlike_note(results),
    )
    extra = (*(note for note in about_runs if note), *notes.merged_notes(results))
    return [replace(each, notes=(*first, *each.notes, *extra)) for each in tables]


def rows_apart(results: Sequence[RunResult]) -> set[MethodKey]:
    """Methods and backbones that saw the domain they are measured on, beside others that did not:
    they are measured on other images, too, and so never the best of all. Upper bounds never are."""
    bounds = {(each.method, each.backbone) for each in results if each.trained_on_unseen}
    adapted = {(each.method, each.backbone) for each in results if each.setting == "adaptation"}
    everyone = {(each.method, each.backbone) for each in results} - bounds
    return bounds | (adapted if adapted != everyone else set())


def _build(
    kind: tuple[str, View, str, Metric],
    layout: Layout,
    numbers: Numbers,
    apart: set[MethodKey],
    largest: Mapping[str, float],
) -> Table:
    dataset, view, rule, metric = kind
    columns = [*(Column(name, metric) for name in layout.columns), Column("overall", "overall")]
    if len(layout.methods) > 1:
        columns.append(Column(f"difference to {layout.methods[0]}", "difference"))
    rows = mark_best(_rows(numbers, layout), columns, apart)
    described = (dataset, *layout.backbones) if len(layout.backbones) == 1 else (dataset,)
    return Table(
        title=f"{VIEWS[view].table_title(metric)} (%): {', '.join(described)}",
        rule=rule,
        columns=tuple(columns),
        rows=tuple(rows),
        dataset=dataset,
        view=view,
        metric=metric,
        always_largest=_always_largest(columns, largest),
        notes=(
            VIEWS[view].table_note,
            notes.seeds_note(layout.seeds),
            notes.always_largest_note(),
            *_row_notes(view, layout, rows, numbers),
        ),
    )


def _always_largest(columns: Sequence[Column], by_column: Mapping[str, float]) -> Row:
    """Without intervals: it is a fact about the images."""
    cells: list[Cell | None] = []
    for column in columns:
        values = [by_column[column.name]] if column.name in by_column else []
        if column.quantity == "overall":
            values = list(by_column.values()) if len(by_column) == len(cells) else []
        value = Estimate(fmean(values), None, 1) if values else None
        cells.append(None if column.quantity == "difference" else Cell(value, 1))
    return Row(LARGEST_CLASS, LARGEST_CLASS, "", tuple(cells))


def _rows(numbers: Numbers, layout: Layout) -> list[Row]:
    overall = {row: overall_by_seed(by_column, layout.seeds) for row, by_column in numbers.items()}
    rows = []
    for row, by_column in numbers.items():
        (method, backbone), own = row, overall[row]
        planned = len(layout.seeds_of(row))
        cells: list[Cell | None] = [
            Cell(estimate(list(by_seed.values())), planned) for by_seed in by_column.values()
        ]
        cells.append(Cell(estimate(list(own.values())), planned))
        if len(layout.methods) > 1:
            reference = overall.get((layout.methods[0], backbone), {})
            reference = layout.reference_of(row, reference)
            difference = Cell(paired_difference(reference, own), planned)
            cells.append(None if method == layout.methods[0] else difference)
        rows.append(Row(layout.row_name(method, backbone), method, backbone, tuple(cells)))
    return rows


def overall_by_seed(by_column: Mapping[str, BySeed], seeds: Iterable[int]) -> BySeed:
    """Mean over the columns, for the seeds that have all of them."""
    columns = by_column.values()
    return {
        seed: fmean(by_seed[seed] for by_seed in columns)
        for seed in seeds
        if all(seed in by_seed for by_seed in columns)
    }


def mark_best(rows: list[Row], columns: Sequence[Column], apart: set[MethodKey]) -> list[Row]:
    """Mark what is highest as printed; a difference only where it is above the reference's zero."""
    if len(rows) == 1:
        return rows
    best: set[tuple[int, int]] = set()
    for position, column in enumerate(columns):
        printed = {
            number: round(cell.estimate.mean, 1)
            for number, row in enumerate(rows)
            if (cell := row.cells[position])
            and cell.estimate
            and cell.complete
            and (row.method, row.backbone) not in apart
        }
        highest = max(printed.values(), default=0.0)
        if column.quantity != "difference" or highest > 0:
            best |= {(number, position) for number in printed if printed[number] == highest}
    return [
        row._replace(
            cells=tuple(
                cell and cell._replace(best=(number, position) in best)
                for position, cell in enumerate(row.cells)
            )
        )
        for number, row in enumerate(rows)
    ]


def _row_notes(view: str, layout: Layout, rows: Sequence[Row], numbers: Numbers) -> Iterable[str]:
    if len(layout.methods) > 1:
        yield notes.difference_note(layout.methods[0])
    whole = {
        row.name: {
            column: cell.estimate.mean
            for column, cell in zip(layout.columns, row.cells, strict=False)
            if cell and cell.estimate
        }
        for row in rows
        if all(cell.complete for cell in row.cells[: len(layout.columns)] if cell)
    }
    if view == "out_of_domain" and len(layout.columns) > 1 and whole:
        yield notes.worst_note(whole)
    for row in rows:
        key = (row.method, row.backbone)
        missing = notes.missing_note(row.name, numbers[key], layout.seeds_of(key))
        if missing:
            yield missing
    if any(cell and cell.estimate and not cell.complete for row in rows for cell in row.cells):
        yield notes.partial_note()
