"""Tables of finished runs under one selection rule: their numbers by row, column and seed, one
table for each view of a comparison, and the summary that papers print, with datasets as columns."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Literal, NamedTuple, TypeVar

from unseen.errors import UnseenError
from unseen.reports import notes
from unseen.reports.text import MISSING
from unseen.results.result import VIEWS, DomainResult, RunResult, View
from unseen.results.rules import check_rule
from unseen.results.statistics import Estimate, above_zero, estimate, macro_mean, paired_difference
from unseen.settings.experiment import Metric

MethodKey = tuple[str, str]
"""Method and backbone: what a row of a table is about."""
BySeed = dict[int, float]
Numbers = dict[MethodKey, dict[str, BySeed]]
"""By row and column, the last of which is OVERALL: percent by seed."""
OVERALL = ""
"""The column with the mean over all columns, for the seeds that have them all: no domain is called
so."""
LARGEST_CLASS = "largest class"
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", str, MethodKey)


class Expected(NamedTuple):
    """What a comparison planned, in the order tables show it; left out: what the results hold."""

    methods: tuple[str, ...] = ()
    unseen_domains: tuple[tuple[str, ...], ...] = ()
    seeds: tuple[int, ...] = ()


class Layout(NamedTuple):
    """Rows, columns and seeds of the tables, in their order."""

    methods: tuple[str, ...]
    backbones: tuple[str, ...]
    rows: tuple[MethodKey, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    over_seeds: frozenset[MethodKey]
    """Rows of models that were merged over seeds: one number in a column, kept under the first
    seed."""

    def seeds_of(self, row: MethodKey) -> tuple[int, ...]:
        return self.seeds[:1] if row in self.over_seeds else self.seeds

    def difference(self, row: MethodKey, reference: BySeed, own: BySeed) -> Estimate | None:
        """Estimates how far a row is above what it is compared to, paired by seed; a model that was
        merged over seeds is compared to the mean over seeds."""
        if row in self.over_seeds and reference:
            reference = {self.seeds[0]: fmean(reference.values())}
        return paired_difference(reference, own)

    def row_name(self, row: MethodKey) -> str:
        method, backbone = row
        return method if len(self.backbones) == 1 else f"{method} ({backbone})"


def check_results(results: Sequence[RunResult], rule: str) -> None:
    """Raises where a table would mix what does not belong together, or hold nothing."""
    if not results:
        raise UnseenError("there are no finished runs to put in a table; train some first")
    datasets = _distinct(result.dataset for result in results)
    if len(datasets) > 1:
        raise UnseenError(
            f"the runs are of several datasets ({', '.join(datasets)}), a table holds one; "
            "give the runs of one dataset"
        )
    recorded = sorted({name for result in results for name in result.rules})
    if rule not in recorded:
        raise UnseenError(
            f"no run recorded the selection rule '{rule}' (recorded: {', '.join(recorded)}); "
            f"choose one of these, or train with selection={rule}"
        )
    seen: dict[tuple[str, ...], str] = {}
    for each in results:
        seed = "several" if _is_over_seeds(each) else str(each.seed)
        place = each.method, each.backbone, f"unseen {column_name(each.unseen_domains)}", seed
        if place in seen:
            raise UnseenError(
                f"runs {seen[place]} and {each.run} are both {', '.join(place[:3])}, seed {seed}; "
                "a table holds one of them, leave the other out"
            )
        seen[place] = each.run


def lay_out(results: Sequence[RunResult], expected: Expected) -> Layout:
    """Orders rows and columns: first what was planned, then what else the results hold."""
    methods = _distinct((*expected.methods, *(each.method for each in results)))
    backbones = _distinct(each.backbone for each in results)
    present = {(each.method, each.backbone) for each in results}
    columns = [*expected.unseen_domains, *(each.unseen_domains for each in results)]
    return Layout(
        methods,
        backbones,
        tuple(
            (method, backbone)
            for backbone in backbones
            for method in methods
            if (method, backbone) in present or method in expected.methods
        ),
        _distinct(map(column_name, columns)),
        tuple(sorted({*expected.seeds, *(each.seed for each in results)})),
        frozenset((each.method, each.backbone) for each in results if _is_over_seeds(each)),
    )


def common_metric(results: Iterable[RunResult]) -> Metric:
    """Returns the metric that the checkpoints of all runs were chosen by."""
    metrics: list[Metric] = list(dict.fromkeys(result.metric for result in results))
    if len(metrics) > 1:
        raise UnseenError(
            f"checkpoints of these runs were chosen by different metrics ({', '.join(metrics)}), "
            "and a table shows one; give the runs of one metric, or say which one to show "
            f"('unseen report RUNS --metric {metrics[-1]}')"
        )
    return metrics[0]


def gather(
    results: Iterable[RunResult], rule: str, view: View, layout: Layout, metric: Metric
) -> Numbers:
    """Returns each run's result, the mean over the domains that the view is about."""
    numbers: Numbers = {row: {column: {} for column in layout.columns} for row in layout.rows}
    for result in results:
        value = _mean(result, rule, view, lambda each: each.measures[metric])
        if value is not None:
            seed = layout.seeds[0] if _is_over_seeds(result) else result.seed
            by_column = numbers[result.method, result.backbone]
            by_column[column_name(result.unseen_domains)][seed] = 100 * value
    for by_column in numbers.values():
        seeds = [s for s in layout.seeds if all(s in values for values in by_column.values())]
        by_column[OVERALL] = {
            seed: fmean(values[seed] for values in by_column.values()) for seed in seeds
        }
    return numbers


def always_largest(
    results: Iterable[RunResult], rule: str, view: View, layout: Layout, metric: Metric
) -> dict[str, float]:
    """Returns the percent by column of always answering with a domain's most frequent class, as far
    as it is known. It depends on the images alone: the first run of a column has it."""
    found: dict[str, float] = {}
    for result in results:
        value = _mean(result, rule, view, lambda each: each.always_largest[metric])
        if value is not None:
            found.setdefault(column_name(result.unseen_domains), 100 * value)
    if set(found) == set(layout.columns):
        found[OVERALL] = fmean(found.values())
    return found


def _mean(
    result: RunResult, rule: str, view: View, measure: Callable[[DomainResult], float]
) -> float | None:
    measured = result.view(rule, view) if rule in result.rules else {}
    domains = result.unseen_domains if view == "out_of_domain" else result.source_domains
    return macro_mean({name: measure(each) for name, each in measured.items()}, domains)


def column_name(unseen_domains: Iterable[str]) -> str:
    """Returns `sketch`, or `photo+sketch` where several domains are unseen at once."""
    return "+".join(sorted(unseen_domains)) or "none unseen"


def _is_over_seeds(result: RunResult) -> bool:
    return result.merged is not None and len(result.merged.seeds) > 1


def _distinct(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))


def estimate_text(value: Estimate, signed: bool = False) -> str:
    """Returns a text such as `65.2 ± 1.3`."""
    mean = round(value.mean, 1) + 0.0  # -0.0 becomes 0.0
    text = f"{mean:+.1f}" if signed else f"{mean:.1f}"
    return text if value.half_width is None else f"{text} ± {value.half_width:.1f}"


class Cell(NamedTuple):
    """Percent (or percentage points) over the seeds that there are, out of `planned` ones; none are
    planned where a method would be compared to itself."""

    estimate: Estimate | None = None
    planned: int = 0
    best: bool = False
    signed: bool = False

    @property
    def complete(self) -> bool:
        return self.estimate is not None and self.estimate.n == self.planned

    @property
    def text(self) -> str:
        """The number with its interval, a sign for differences, and * where seeds are missing."""
        if self.estimate is None:
            return MISSING if self.planned else ""
        return estimate_text(self.estimate, self.signed) + "*" * (not self.complete)


class Row(NamedTuple):
    """A method, and its backbone."""

    name: str
    method: str
    backbone: str
    cells: tuple[Cell, ...]

    @property
    def key(self) -> MethodKey:
        return self.method, self.backbone


@dataclass(frozen=True)
class Table:
    """One view of one dataset under one selection rule, by one metric; `notes` belong in every
    caption."""

    title: str
    rule: str
    columns: tuple[str, ...]
    """Domains (or datasets), the overall and, where methods are compared, the difference."""
    domains: int
    """How many of the columns are not the overall or the difference."""
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

    @property
    def texts(self) -> list[list[str]]:
        """The header and all lines as they are printed."""
        lines = [[row.name, *(cell.text for cell in row.cells)] for row in self.lines]
        return [["method", *self.columns], *lines]


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
    compared = [f"difference to {layout.methods[0]}"] * (len(layout.methods) > 1)
    backbone = f", {layout.backbones[0]}" if len(layout.backbones) == 1 else ""
    tables: list[Table] = []
    for view, texts in VIEWS.items():
        numbers = gather(results, rule, view, layout, metric)
        if not any(by_seed for by_column in numbers.values() for by_seed in by_column.values()):
            continue
        rows = _rows(numbers, layout, _rows_apart(results))
        largest = always_largest(results, rule, view, layout, metric)
        cells = [
            Cell(Estimate(largest[name], None, 1) if name in largest else None, 1)
            for name in (*layout.columns, OVERALL)
        ]
        table = Table(
            f"{texts.table_title(metric)} (%): {results[0].dataset}{backbone}",
            rule,
            (*layout.columns, "overall", *compared),
            len(layout.columns),
            tuple(rows),
            results[0].dataset,
            view,
            metric,
            always_largest=Row(
                LARGEST_CLASS, LARGEST_CLASS, "", (*cells, *(Cell() for _ in compared))
            ),
            notes=(
                *notes.selection_notes(results, rule, metric),
                texts.table_note,
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
    columns = [
        _cells({row: by_column[name] for row, by_column in numbers.items()}, planned, apart)
        for name in (*layout.columns, OVERALL)
    ]
    first, *others = layout.methods
    rows = []
    for row, by_column in numbers.items():
        cells = [column[row] for column in columns]
        if row[0] != first:
            reference = numbers.get((first, row[1]), {}).get(OVERALL, {})
            difference = layout.difference(row, reference, by_column[OVERALL])
            cell = Cell(difference, planned[row], signed=True)
            ahead = row not in apart and cell.complete and above_zero(difference)
            cells.append(cell._replace(best=ahead))
        elif others:
            cells.append(Cell())
        rows.append(Row(layout.row_name(row), *row, tuple(cells)))
    return rows


def _cells(
    column: Mapping[_Key, BySeed],
    planned: Mapping[_Key, int],
    apart: set[_Key],
    spread: Callable[[list[float]], Estimate | None] = estimate,
) -> dict[_Key, Cell]:
    """Makes the cells of a column. The best is the row that is ahead of all others beyond noise,
    among those with all their seeds."""
    whole = {
        row: by_seed
        for row, by_seed in column.items()
        if by_seed and len(by_seed) == planned[row] and row not in apart
    }

    def is_best(row: _Key) -> bool:
        others = [by_seed for key, by_seed in whole.items() if key != row]
        ahead = (above_zero(paired_difference(other, whole[row])) for other in others)
        return row in whole and bool(others) and all(ahead)

    return {
        row: Cell(spread([*by_seed.values()]), planned[row], is_best(row))
        for row, by_seed in column.items()
    }


def _about_rows(view: View, layout: Layout, rows: Sequence[Row], numbers: Numbers) -> Iterator[str]:
    if len(layout.methods) > 1:
        yield notes.DIFFERENCE.format(layout.methods[0])
    if len(rows) > 1 and len(layout.seeds) > 1:
        yield notes.BOLD
    whole = {
        row.name: {
            column: cell.estimate.mean
            for column, cell in zip(layout.columns, row.cells, strict=False)
            if cell.estimate
        }
        for row in rows
        if all(cell.complete for cell in row.cells[: len(layout.columns)])
    }
    if view == "out_of_domain" and len(layout.columns) > 1 and 0 < len(whole) <= notes.MOST_NAMED:
        yield notes.worst_note(whole)
    lacking: list[str] = []
    for row in rows:
        by_column = {name: numbers[row.key][name] for name in layout.columns}
        lacking += notes.missing_note(row.name, by_column, layout.seeds_of(row.key))
    few = len(lacking) <= notes.MOST_NAMED
    yield from lacking if few else [f"{len(lacking)} of {len(rows)} rows lack results."]
    if any(cell.estimate and not cell.complete for row in rows for cell in row.cells):
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
    columns: dict[str, dict[str, BySeed]] = {name: {} for name in by_dataset}
    for name, results in by_dataset.items():
        if results:
            layout, chosen = lay_out(results, expected[name]), next(iter(results[0].rules))
            numbers = gather(results, chosen, "out_of_domain", layout, common_metric(results))
            columns[name] = {layout.row_name(row): own[OVERALL] for row, own in numbers.items()}
    planned = {name: len(expected[name].seeds) for name in by_dataset}
    apart = {method for method, _ in _rows_apart(everything)}
    names = _distinct(row for by_row in columns.values() for row in by_row)
    found = [
        _cells(
            {row: by_row.get(row, {}) for row in names},
            dict.fromkeys(names, planned[name]),
            apart,
            standard_error,
        )
        for name, by_row in columns.items()
    ]
    rows = []
    for row in names:
        cells = [column[row] for column in found]
        means = [cell.estimate.mean for cell in cells if cell.estimate and cell.complete]
        average = Estimate(fmean(means), None, 1) if len(means) == len(cells) else None
        rows.append(Row(row, row, "", (*cells, Cell(average, 1))))
    recorded = next((recorded for each in everything for recorded in each.rules), "")
    whole = all(cell.complete for row in rows for cell in row.cells[:-1])
    return Table(
        f"{VIEWS['out_of_domain'].table_title(metric)} (%): {', '.join(by_dataset)}",
        rule,
        (*by_dataset, "average"),
        len(by_dataset),
        tuple(rows),
        "summary",
        "out_of_domain",
        metric,
        notes=(
            *about,
            notes.spread_note(sorted(set(planned.values()))),
            *[notes.BOLD] * (max(planned.values()) > 1),
            *notes.upper_bound_note(everything, recorded),
            *notes.adaptation_note(everything),
            *[notes.NO_AVERAGE] * (not whole),
        ),
        spread="standard_error",
    )


def standard_error(values: Sequence[float]) -> Estimate | None:
    """Returns mean and standard error as DomainBed computes it: the deviation of all values (not of
    a sample) from their mean, divided by the root of their number."""
    if not values:
        return None
    n = len(values)
    return Estimate(fmean(values), pstdev(values) / math.sqrt(n) if n > 1 else None, n)
