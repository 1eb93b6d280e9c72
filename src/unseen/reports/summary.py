"""The table that papers print: methods as rows, datasets as columns, the average last."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

from unseen.reports import notes
from unseen.reports.gather import Expected, common_metric, gather, lay_out
from unseen.reports.tables import (
    Cell,
    Column,
    Row,
    Table,
    mark_best,
    overall_by_seed,
    rows_apart,
)
from unseen.results.result import VIEWS, RunResult
from unseen.results.statistics import Estimate

BySeed = dict[int, float]
_AVERAGE = Column("average", "overall")


def summarize(
    by_dataset: Mapping[str, Sequence[RunResult]],
    expected: Mapping[str, Expected],
    rule: str,
    about: Sequence[str] = (),
) -> Table:
    """Of the results that a rule chose: each has one checkpoint that counts. A dataset's number is
    the mean over its domains, for each seed; `about` are notes that belong to every number."""
    found: dict[str, dict[str, BySeed]] = {}
    planned: dict[str, int] = {}
    for name, results in by_dataset.items():
        found[name] = _by_row(results, expected[name]) if results else {}
        planned[name] = len(expected[name].seeds)
    rows = list(dict.fromkeys(row for by_row in found.values() for row in by_row))
    everything = [each for results in by_dataset.values() for each in results]
    metric = common_metric(everything)
    columns = (*(Column(name, metric) for name in by_dataset), _AVERAGE)
    apart = {(method, "") for method, _ in rows_apart(everything)}
    table_rows = [
        Row(row, row, "", _cells([found[name].get(row, {}) for name in found], planned))
        for row in rows
    ]
    trials = sorted(set(planned.values()))
    return Table(
        title=f"{VIEWS['out_of_domain'].table_title(metric)} (%): {', '.join(by_dataset)}",
        rule=rule,
        columns=columns,
        rows=tuple(mark_best(table_rows, columns, apart)),
        dataset="summary",
        view="out_of_domain",
        metric=metric,
        notes=(*about, _spread_note(trials), *_row_notes(table_rows, everything)),
        spread="standard_error",
    )


def standard_error(values: Sequence[float]) -> Estimate | None:
    """Mean and standard error as DomainBed computes it: the deviation of all values (not of a
    sample) from their mean, divided by the root of their number."""
    if not values:
        return None
    n = len(values)
    return Estimate(fmean(values), pstdev(values) / math.sqrt(n) if n > 1 else None, n)


def _by_row(results: Sequence[RunResult], expected: Expected) -> dict[str, BySeed]:
    """For each row, the mean over the held-out domains by seed."""
    (rule, *_) = results[0].rules
    layout = lay_out(results, expected)
    numbers = gather(results, rule, "out_of_domain", layout, common_metric(results))
    return {
        layout.row_name(*row): overall_by_seed(by_column, layout.seeds)
        for row, by_column in numbers.items()
    }


def _cells(by_dataset: Sequence[BySeed], planned: Mapping[str, int]) -> tuple[Cell, ...]:
    cells = [
        Cell(standard_error(list(by_seed.values())), number)
        for by_seed, number in zip(by_dataset, planned.values(), strict=True)
    ]
    means = [cell.estimate.mean for cell in cells if cell.estimate is not None and cell.complete]
    whole = len(means) == len(cells)
    average = Estimate(fmean(means), None, 1) if whole else None
    return (*cells, Cell(average, 1))


def _spread_note(trials: Sequence[int]) -> str:
    number = " or ".join(map(str, trials))
    if trials == [1]:
        return "Percent, the mean over the domains of a dataset; one seed, so no error is known."
    return (
        f"Percent, the mean over the domains of a dataset; ± is the standard error over {number} "
        "seeds (as in DomainBed: the deviation of all of them, divided by the root of their "
        "number; not the interval of the other tables); the average has none."
    )


def _row_notes(rows: Sequence[Row], results: Sequence[RunResult]) -> list[str]:
    recorded = next((rule for each in results for rule in each.rules), "")
    found = [notes.upper_bound_note(results, recorded), notes.adaptation_note(results)]
    if any(cell and not cell.complete for row in rows for cell in row.cells):
        found.append("Without all their seeds, numbers have a * and no average is made of them.")
    return [note for note in found if note]
