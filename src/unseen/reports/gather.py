"""Results of runs in the order of a table: what was planned, what is there, and its numbers."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple, TypeVar

from unseen.errors import UnseenError
from unseen.results.result import DomainResult, RunResult, View
from unseen.results.statistics import Estimate, macro_mean, paired_difference
from unseen.settings.experiment import Metric

MethodKey = tuple[str, str]
"""Method and backbone: what a row of a table is about."""
BySeed = dict[int, float]
Numbers = dict[MethodKey, dict[str, BySeed]]
"""By row and column, the last of which is OVERALL: percent by seed."""
OVERALL = ""
"""The column with the mean over all columns, for the seeds that have them all: no domain is called
so."""
_Item = TypeVar("_Item")


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
    over_seeds: frozenset[MethodKey] = frozenset()
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
    seen: dict[tuple[str, str, str, int | str], str] = {}
    for result in results:
        key = (*_place(result), "several" if _is_over_seeds(result) else result.seed)
        if key in seen:
            raise UnseenError(
                f"runs {seen[key]} and {result.run} are both {key[0]}, {key[1]}, "
                f"unseen {key[2]}, seed {key[3]}; a table holds one of them, leave the other out"
            )
        seen[key] = result.run


def lay_out(results: Sequence[RunResult], expected: Expected) -> Layout:
    """Orders rows and columns: first what was planned, then what else the results hold."""
    methods = _distinct((*expected.methods, *(each.method for each in results)))
    backbones = _distinct(each.backbone for each in results)
    planned = (column_name(domains) for domains in expected.unseen_domains)
    present = {(each.method, each.backbone) for each in results}
    return Layout(
        methods=methods,
        backbones=backbones,
        rows=tuple(
            (method, backbone)
            for backbone in backbones
            for method in methods
            if (method, backbone) in present or method in expected.methods
        ),
        columns=_distinct((*planned, *(column_name(each.unseen_domains) for each in results))),
        seeds=tuple(sorted({*expected.seeds, *(each.seed for each in results)})),
        over_seeds=frozenset(
            (each.method, each.backbone) for each in results if _is_over_seeds(each)
        ),
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
            method, backbone, column = _place(result)
            seed = layout.seeds[0] if _is_over_seeds(result) else result.seed
            numbers[method, backbone][column][seed] = 100 * value
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
        column = column_name(result.unseen_domains)
        if column not in found:
            value = _mean(result, rule, view, lambda each: each.always_largest[metric])
            if value is not None:
                found[column] = 100 * value
    if set(found) == set(layout.columns):
        found[OVERALL] = fmean(found.values())
    return found


def _mean(
    result: RunResult, rule: str, view: View, measure: Callable[[DomainResult], float]
) -> float | None:
    measured = result.view(rule, view) if rule in result.rules else {}
    outside = view == "out_of_domain"
    domains = result.unseen_domains if outside else result.source_domains
    return macro_mean({name: measure(each) for name, each in measured.items()}, domains)


def column_name(unseen_domains: Iterable[str]) -> str:
    """Returns `sketch`, or `photo+sketch` where several domains are unseen at once."""
    return "+".join(sorted(unseen_domains)) or "none unseen"


def _place(result: RunResult) -> tuple[str, str, str]:
    return result.method, result.backbone, column_name(result.unseen_domains)


def _is_over_seeds(result: RunResult) -> bool:
    return result.merged is not None and len(result.merged.seeds) > 1


def _distinct(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))
