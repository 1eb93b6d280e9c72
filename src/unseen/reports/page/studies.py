"""A study is what belongs in one set of tables: runs on one dataset, in one setting."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from unseen.reports.figures.charts import Axis, ChartRow, Mark
from unseen.reports.figures.svg import Key
from unseen.reports.gather import (
    Expected,
    Layout,
    MethodKey,
    Numbers,
    always_largest,
    gather,
    lay_out,
)
from unseen.reports.page.parts import PageRow, Value, page_cells
from unseen.reports.page.runs import Run, with_labels
from unseen.reports.tables import Table, build_tables
from unseen.results.result import RunResult, View
from unseen.results.rules import RULES, meaning
from unseen.settings import catalog
from unseen.settings.experiment import METRICS, Metric


@dataclass(frozen=True)
class Study:
    dataset: str
    setting: str
    number_unseen: int
    runs: tuple[Run, ...]
    """In the order of the tables: by method as in the catalog, held-out domain and seed."""
    main_rule: str
    metric: Metric
    """The metric that is shown; checkpoints may have been chosen by another one."""

    @property
    def title(self) -> str:
        parts = [self.dataset]
        if self.setting != "generalization":
            parts.append(self.setting)
        if self.number_unseen != 1:
            parts.append(f"{self.number_unseen or 'no'} domains unseen")
        if self.metric != "accuracy":
            parts.append(self.measure)
        return ", ".join(parts)

    @property
    def measure(self) -> str:
        """The metric that is shown, in words."""
        return METRICS[self.metric]

    def meaning(self, rule: str) -> str:
        """What a selection rule does, in words."""
        first = self.runs[0].metric
        same = all(run.metric == first for run in self.runs)
        return meaning(rule, first if same else None)

    @cached_property
    def rows(self) -> tuple[MethodKey, ...]:
        """(method, backbone); the first is what others are compared to."""
        return tuple(dict.fromkeys(run.row for run in self.runs))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(sorted(dict.fromkeys(run.column for run in self.runs), key=self.rank))

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """All domains, in the order of the dataset as far as the runs show it."""
        seen = _in_order(run.training_domains for run in self.runs)
        return tuple(dict.fromkeys((*seen, *(d for run in self.runs for d in run.unseen_domains))))

    @cached_property
    def upper_bounds(self) -> frozenset[MethodKey]:
        """Rows that were trained on labels of the unseen domains."""
        return frozenset(run.row for run in self.runs if run.upper_bound)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({run.seed for run in self.runs}))

    def first_runs(self, runs: Iterable[Run]) -> list[Run]:
        """Returns the run with the lowest seed of each column and row, in the tables' order."""
        first = {(run.column, run.row): run for run in sorted(runs, key=lambda run: -run.seed)}
        return [first[place] for place in product(self.columns, self.rows) if place in first]

    @cached_property
    def results(self) -> list[RunResult]:
        """The results of the finished runs, under their labels."""
        return [
            run.result.model_copy(update={"method": run.label})
            for run in self.runs
            if run.result is not None
        ]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        recorded = {rule for result in self.results for rule in result.rules}
        return tuple(rule for rule in RULES if rule in recorded)

    @cached_property
    def expected(self) -> Expected:
        """What was planned; runs that are under way count, too."""
        one_backbone = len({backbone for _, backbone in self.rows}) == 1
        by_column = {run.column: tuple(run.unseen_domains) for run in self.runs}
        return Expected(
            tuple(label for label, _ in self.rows) if one_backbone else (),
            tuple(by_column[column] for column in self.columns),
            self.seeds,
        )

    @cached_property
    def layout(self) -> Layout:
        return lay_out(self.results, self.expected)

    def tables(self, rule: str) -> list[Table]:
        return build_tables(self.results, rule, self.expected, self.metric)

    def numbers(self, rule: str, view: View) -> Numbers:
        return gather(self.results, rule, view, self.layout, self.metric)

    def always_largest(self, rule: str) -> dict[str, float]:
        """What always answering with the largest class would get on the unseen domains."""
        return always_largest(self.results, rule, "out_of_domain", self.layout, self.metric)

    @property
    def percent(self) -> Axis:
        return Axis(0, 100, f"{self.measure}, %")

    def row_name(self, row: MethodKey) -> str:
        several = len({backbone for _, backbone in self.rows}) > 1
        return f"{row[0]} ({row[1]})" if several else row[0]

    def color(self, row: MethodKey) -> int:
        return self.rows.index(row) % 12

    def tags(self, row: MethodKey, seed: int | None = None) -> tuple[str, ...]:
        """Returns what the boxes below the conclusion hide it by."""
        own = (f"m{self.rows.index(row)}",)
        return own if seed is None else (*own, f"s{seed}")

    def table_row(self, row: MethodKey, *values: Value, seed: int | None = None) -> PageRow:
        """Returns a row of a table, in the method's colour and hidden together with it."""
        return PageRow(page_cells(*values), self.tags(row, seed), self.color(row))

    def chart_row(
        self,
        row: MethodKey,
        marks: Iterable[Mark],
        text: str = "",
        points: tuple[float, ...] = (),
    ) -> ChartRow:
        """Returns a row of a chart, in the method's colour and hidden together with it."""
        look = (self.row_name(row), self.color(row))
        return ChartRow(*look, tuple(marks), text, self.tags(row), points)

    def legend(self, rows: Iterable[MethodKey] | None = None) -> tuple[Key, ...]:
        """Returns the methods with the colours of their lines."""
        chosen = self.rows if rows is None else rows
        return tuple(
            Key(self.row_name(row), self.color(row), "line", self.tags(row)) for row in chosen
        )

    def domain_color(self, domain: str) -> int:
        return 1 + self.domains.index(domain) % 11

    def rank(self, column: str) -> tuple[int, str]:
        """Returns what domains and columns are sorted by: the place in the dataset, where known."""
        known = self.domains.index(column) if column in self.domains else len(self.domains)
        return known, column


def make_studies(
    runs: Sequence[Run], rule: str | None, metric: Metric | None = None
) -> list[Study]:
    """Sorts runs into studies, the largest first. Runs whose checkpoints were chosen by different
    metrics are in one study only where it is said which metric to show."""
    groups: dict[tuple[str, str, int, Metric], list[Run]] = {}
    for run in runs:
        setting = run.settings.get("setting", "generalization")
        shown = metric or run.metric
        key = (run.settings["data"]["name"], setting, len(run.unseen_domains), shown)
        groups.setdefault(key, []).append(run)
    studies = []
    for key, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        ordered = sorted(with_labels(group), key=_place)
        common = Counter(run.rule for run in ordered).most_common(1)[0][0]
        studies.append(Study(*key[:3], tuple(ordered), rule or common, key[3]))
    return studies


def _place(run: Run) -> tuple[Any, ...]:
    known = list(catalog.METHODS)
    rank = known.index(run.method) if run.method in known else len(known)
    return run.backbone, run.upper_bound, run.place, rank, run.label, run.column, run.seed


def _in_order(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Makes one order of many partial ones: a domain comes after all that are seen before it."""
    before: dict[str, set[str]] = {}
    for names in lists:
        for place, name in enumerate(names):
            before.setdefault(name, set()).update(names[:place])
    return tuple(sorted(before, key=lambda name: (len(before[name]), name)))
