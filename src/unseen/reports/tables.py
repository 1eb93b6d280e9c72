"""Tables of finished runs under one selection rule: one for each view of a comparison, and the
summary that papers print, with datasets as columns."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Literal, NamedTuple, TypeVar

from unseen.reports import notes
from unseen.reports.gather import (
    OVERALL,
    BySeed,
    Expected,
    Layout,
    MethodKey,
    Numbers,
    always_largest,
    check_results,
    common_metric,
    gather,
    lay_out,
)
from unseen.results.result import VIEWS, RunResult, View
from unseen.results.rules import check_rule
from unseen.results.statistics import Estimate, above_zero, estimate, paired_difference
from unseen.settings.experiment import Metric

Quantity = Metric | Literal["overall", "difference"]
LARGEST_CLASS = "largest class"
_Key = TypeVar("_Key", str, MethodKey)


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

    @property
    def key(self) -> MethodKey:
        return self.method, self.backbone


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
    """Returns a table for each view that was measured; others are compared to the first method.

    `expected` sets the order, and what of it is not there yet is shown as missing; without it,
    methods and columns come in the order of `results`. `metric` shows another one than that which
    the checkpoints were chosen by, and notes say so.
    """
    check_rule(rule)
    check_results(results, rule)
    metric = metric or common_metric(results)
    layout = lay_out(results, expected or Expected())
    columns = [*(Column(name, metric) for name in layout.columns), Column("overall", "overall")]
    if len(layout.methods) > 1:
        columns.append(Column(f"difference to {layout.methods[0]}", "difference"))
    backbone = f", {layout.backbones[0]}" if len(layout.backbones) == 1 else ""
    tables: list[Table] = []
    for view in VIEWS:
        numbers = gather(results, rule, view, layout, metric)
        if not any(by_seed for by_column in numbers.values() for by_seed in by_column.values()):
            continue
        rows = _rows(numbers, layout, _rows_apart(results))
        largest = always_largest(results, rule, view, layout, metric)
        table = Table(
            title=f"{VIEWS[view].table_title(metric)} (%): {results[0].dataset}{backbone}",
            rule=rule,
            columns=tuple(columns),
            rows=tuple(rows),
            dataset=results[0].dataset,
            view=view,
            metric=metric,
            always_largest=_largest_row(largest, layout),
            notes=(
                *notes.selection_notes(results, rule, metric),
                VIEWS[view].table_note,
                notes.seeds_note(layout.seeds),
                notes.ALWAYS_LARGEST,
                *_about_rows(view, layout, rows, numbers),
                *notes.notes_on_runs(results, rule),
            ),
        )
        tables.append(table)
    return tables


def notes_once(tables: Iterable[Table]) -> Iterator[Table]:
    """Yields the tables, each with only those notes that none before it had, to be shown one below
    the other."""
    told: set[str] = set()
    for table in tables:
        yield replace(table, notes=tuple(note for note in table.notes if note not in told))
        told.update(table.notes)


def _rows_apart(results: Iterable[RunResult]) -> set[MethodKey]:
    """Returns the rows that saw the domain they are measured on, beside others that did not: they
    are measured on other images, too, and so never the best of all. Upper bounds never are."""
    bounds = {(each.method, each.backbone) for each in results if each.trained_on_unseen}
    adapted = {(each.method, each.backbone) for each in results if each.setting == "adaptation"}
    everyone = {(each.method, each.backbone) for each in results} - bounds
    return bounds | (adapted if adapted != everyone else set())


def _rows(numbers: Numbers, layout: Layout, apart: set[MethodKey]) -> list[Row]:
    planned = {row: len(layout.seeds_of(row)) for row in numbers}
    columns = {
        name: {row: by_column[name] for row, by_column in numbers.items()}
        for name in (*layout.columns, OVERALL)
    }
    leaders = {name: _leader(column, planned, apart) for name, column in columns.items()}
    rows = []
    for row, by_column in numbers.items():
        cells: list[Cell | None] = [
            Cell(estimate(list(by_column[name].values())), planned[row], row == leaders[name])
            for name in columns
        ]
        (method, backbone), (first, *others) = row, layout.methods
        if method != first:
            reference = columns[OVERALL].get((first, backbone), {})
            difference = layout.difference(row, reference, by_column[OVERALL])
            cell = Cell(difference, planned[row])
            ahead = row not in apart and cell.complete and above_zero(difference)
            cells.append(cell._replace(best=ahead))
        elif others:
            cells.append(None)
        rows.append(Row(layout.row_name(row), method, backbone, tuple(cells)))
    return rows


def _leader(
    column: Mapping[_Key, BySeed], planned: Mapping[_Key, int], apart: set[_Key]
) -> _Key | None:
    """Returns the row that is ahead of all others beyond noise, among those with all their
    seeds."""
    whole = {
        row: by_seed
        for row, by_seed in column.items()
        if by_seed and len(by_seed) == planned[row] and row not in apart
    }
    for row, by_seed in whole.items():
        others = [other for key, other in whole.items() if key != row]
        if others and all(above_zero(paired_difference(other, by_seed)) for other in others):
            return row
    return None


def _largest_row(by_column: Mapping[str, float], layout: Layout) -> Row:
    """Returns a row without intervals: it is a fact about the images."""
    cells: list[Cell | None] = [
        Cell(Estimate(by_column[name], None, 1) if name in by_column else None, 1)
        for name in (*layout.columns, OVERALL)
    ]
    difference = [None] if len(layout.methods) > 1 else []
    return Row(LARGEST_CLASS, LARGEST_CLASS, "", (*cells, *difference))


def _about_rows(view: View, layout: Layout, rows: Sequence[Row], numbers: Numbers) -> Iterator[str]:
    if len(layout.methods) > 1:
        yield notes.difference_note(layout.methods[0])
    if len(rows) > 1 and len(layout.seeds) > 1:
        yield notes.BOLD
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
        by_column = {name: numbers[row.key][name] for name in layout.columns}
        yield from notes.missing_note(row.name, by_column, layout.seeds_of(row.key))
    if any(cell and cell.estimate and not cell.complete for row in rows for cell in row.cells):
        yield notes.PARTIAL


def summarize(
    by_dataset: Mapping[str, Sequence[RunResult]],
    expected: Mapping[str, Expected],
    rule: str,
    about: Sequence[str] = (),
) -> Table:
    """Returns the table that papers print: methods as rows, datasets as columns, the average last.

    The results are those that a rule chose: each has one checkpoint that counts. A dataset's number
    is the mean over its domains, for each seed; `about` are notes that belong to every number.
    """
    everything = [each for results in by_dataset.values() for each in results]
    metric = common_metric(everything)
    columns = {name: _overall(results, expected[name]) for name, results in by_dataset.items()}
    planned = {name: len(expected[name].seeds) for name in by_dataset}
    apart = {method for method, _ in _rows_apart(everything)}
    rows = list(dict.fromkeys(row for by_row in columns.values() for row in by_row))
    leaders = [
        _leader(by_row, dict.fromkeys(by_row, planned[name]), apart)
        for name, by_row in columns.items()
    ]
    cells = {
        row: [
            Cell(standard_error([*by_row.get(row, {}).values()]), planned[name], row == leader)
            for (name, by_row), leader in zip(columns.items(), leaders, strict=True)
        ]
        for row in rows
    }
    return Table(
        title=f"{VIEWS['out_of_domain'].table_title(metric)} (%): {', '.join(by_dataset)}",
        rule=rule,
        columns=(*(Column(name, metric) for name in by_dataset), Column("average", "overall")),
        rows=tuple(Row(row, row, "", (*cells[row], _average(cells[row]))) for row in rows),
        dataset="summary",
        view="out_of_domain",
        metric=metric,
        notes=(*about, *_about_summary(set(planned.values()), cells.values(), everything)),
        spread="standard_error",
    )


def _average(cells: Sequence[Cell]) -> Cell:
    """Returns the mean over datasets, without an interval; none where one of them lacks a seed."""
    means = [cell.estimate.mean for cell in cells if cell.estimate and cell.complete]
    return Cell(Estimate(fmean(means), None, 1) if len(means) == len(cells) else None, 1)


def _about_summary(
    seeds: set[int], rows: Iterable[Sequence[Cell]], results: Sequence[RunResult]
) -> Iterator[str]:
    rule = next((rule for each in results for rule in each.rules), "")
    yield notes.spread_note(sorted(seeds))
    if max(seeds) > 1:
        yield notes.BOLD
    yield from notes.upper_bound_note(results, rule)
    yield from notes.adaptation_note(results)
    if not all(cell.complete for cells in rows for cell in cells):
        yield "Without all their seeds, numbers have a * and no average is made of them."


def standard_error(values: Sequence[float]) -> Estimate | None:
    """Returns mean and standard error as DomainBed computes it: the deviation of all values (not of
    a sample) from their mean, divided by the root of their number."""
    if not values:
        return None
    n = len(values)
    return Estimate(fmean(values), pstdev(values) / math.sqrt(n) if n > 1 else None, n)


def _overall(results: Sequence[RunResult], expected: Expected) -> dict[str, BySeed]:
    """Returns for each row the mean over the held-out domains by seed."""
    if not results:
        return {}
    (rule, *_) = results[0].rules
    layout = lay_out(results, expected)
    numbers = gather(results, rule, "out_of_domain", layout, common_metric(results))
    return {layout.row_name(row): by_column[OVERALL] for row, by_column in numbers.items()}
