"""Runs as the page needs them, finished or not, and studies: the runs that belong in one set of
tables, on one dataset and in one setting."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from unseen.atomic import read_object
from unseen.errors import UnseenError
from unseen.reports import tables
from unseen.reports.figures.charts import ChartRow, Mark
from unseen.reports.figures.svg import Key
from unseen.reports.page.parts import PageCell, PageRow, Part, page_row, under_rule
from unseen.reports.tables import OVERALL, MethodKey
from unseen.results.files import read_arrays_if_whole
from unseen.results.folder import RunFolder, find_runs, read_run_list
from unseen.results.result import RunResult, View, labelled_bound
from unseen.results.rules import RULES, meaning
from unseen.settings import catalog
from unseen.settings.experiment import METRICS, Metric
from unseen.settings.recipes import flattened

_ONE_STUDY = {"seed", "recipe", "data.unseen_domain", "data.training_domains", "data.root"}
_ONE_STUDY |= {"data.cache"}
"""Settings in which the runs of one method may differ and still fill one row of a table."""
MOST_DRAWN = 12
"""Rows that figures show, as many as there are colours; tables have all."""
_MOST_NAMED = 2  # settings in a row's name; forms that differ in more are numbered


@dataclass(frozen=True)
class Run:
    """One run folder; `label` is its recipe's name, or tells apart two forms of one recipe."""

    folder: RunFolder
    settings: Mapping[str, Any]
    result: RunResult | None
    label: str
    environment: Mapping[str, Any]
    timing: Mapping[str, Any]
    method: str
    backbone: str
    seed: int
    unseen_domains: tuple[str, ...]
    training_domains: tuple[str, ...]
    rule: str
    metric: Metric
    upper_bound: bool
    """Whether it was trained on labels of the domain that it is measured on."""
    place: int = 0
    """The place of its row, where a list of runs names the rows."""

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def row(self) -> MethodKey:
        return self.label, self.backbone

    @property
    def column(self) -> str:
        return tables.column_name(self.unseen_domains)

    @cached_property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """All records up to now. They are read when they are asked for: there may be many runs."""
        return self.folder.read_metrics()

    @cached_property
    def evaluations(self) -> list[Mapping[str, Any]]:
        return [record for record in self.metrics if "validation" in record]

    @property
    def steps_done(self) -> int:
        return max((record["step"] for record in self.metrics), default=0)

    @property
    def statistics(self) -> Mapping[str, Any]:
        """The method's own statistics at the step that the run's rule chose, or at the newest."""
        step = self.result.under(self.rule).step if self.result else self.steps_done
        chosen = [record for record in self.evaluations if record["step"] == step]
        return ([{}, *self.evaluations, *chosen][-1]).get("statistics") or {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what its method handed over; empty without a whole file."""
        return read_arrays_if_whole(self.folder.arrays)


def load_runs(folder: Path) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Reads every run below a folder. One that cannot be read hides no other: its folder is named,
    and why."""
    runs, problems = [], []
    listed = read_run_list(folder)
    rows = dict(zip(listed.runs, listed.rows, strict=False)) if listed else {}
    order = list(dict.fromkeys(rows.values()))
    for each in find_runs(folder):
        try:
            run = _load(each)
            if row := rows.get(each.path):
                run = replace(run, label=row, place=order.index(row))
            runs.append(run)
        except (UnseenError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, UnseenError) else f"no {error} in its records"
            problems.append((each.path, reason))
    return runs, problems


def _load(folder: RunFolder) -> Run:
    settings = folder.read_settings()
    data = settings["data"]
    result = folder.read_result() if folder.finished else None
    environment, timing, images = (
        read_object(path) if path.is_file() else {}
        for path in (folder.environment, folder.timing, folder.data)
    )
    if timing:
        folder.read_seconds()
    if not all(isinstance(word, str) for word in environment.get("command") or ()):
        raise UnseenError(f"{folder.environment} is damaged: its command is not made of words")

    def domains(name: str, setting: str) -> tuple[str, ...]:
        known = getattr(result, name) if result else images.get(name)
        return tuple(known or data[setting])

    method, bound = settings["method"]["name"], bool(data.get("train_on_unseen"))
    label = settings.get("recipe") or method
    run = Run(
        folder,
        settings,
        result,
        result.label if result else labelled_bound(label) if bound else label,
        environment,
        timing,
        method,
        settings["network"]["name"],
        result.seed if result else settings["seed"],
        domains("unseen_domains", "unseen_domain"),
        domains("training_domains", "training_domains"),
        settings["selection"],
        settings.get("metric", "accuracy"),
        bound,
    )
    folder.checked(folder.metrics)
    if not (result and folder.has_digests):  # only these tell that the log can be read later
        _ = run.metrics
    if not all((run.backbone, run.rule)) or run.seed is None:
        raise UnseenError(f"{folder.settings} lacks a setting")
    return run


def _name_apart(runs: list[Run]) -> list[Run]:
    """Distinguishes the runs of a row that would fill the same cell, by settings, `dmg
    overlap_weight=0.1`, or by number where they differ in more than a row has room for."""
    if not _clash(runs):
        return runs
    flat = [flattened(run.settings) for run in runs]
    keys = sorted({key for settings in flat for key in settings} - _ONE_STUDY)
    varying = [
        key
        for key in keys
        if not key.startswith("devices.") and len({str(own.get(key)) for own in flat}) > 1
    ]
    forms = [" ".join(f"{k.rpartition('.')[2]}={own.get(k)}" for k in varying) for own in flat]
    if len(varying) > _MOST_NAMED:
        order = list(dict.fromkeys(forms))
        forms = [str(order.index(form) + 1) for form in forms]
    labels = [f"{run.label} {form}".strip() for run, form in zip(runs, forms, strict=True)]
    named = [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]
    if _clash(named):
        return [replace(run, label=f"{run.label} {run.name[-12:]}") for run in named]
    return named


def _clash(runs: Sequence[Run]) -> bool:
    return len({(run.label, run.column, run.seed) for run in runs}) < len(runs)


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
        setting = self.setting if self.setting != "generalization" else ""
        unseen = f"{self.number_unseen or 'no'} domains unseen" * (self.number_unseen != 1)
        measure = self.measure if self.metric != "accuracy" else ""
        return ", ".join(filter(None, (self.dataset, setting, unseen, measure)))

    @property
    def measure(self) -> str:
        """The metric that is shown, in words."""
        return METRICS[self.metric]

    def meaning(self, rule: str) -> str:
        """What a selection rule does, in words."""
        first = self.runs[0].metric
        return meaning(rule, first if all(run.metric == first for run in self.runs) else None)

    @cached_property
    def rows(self) -> tuple[MethodKey, ...]:
        """(method, backbone); the first is what others are compared to."""
        return tuple(dict.fromkeys(run.row for run in self.runs))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(sorted(dict.fromkeys(run.column for run in self.runs), key=self.rank))

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """All domains, in the order of the dataset as far as the runs show it: a domain comes after
        all that are seen before it."""
        before: dict[str, set[str]] = {}
        for run in self.runs:
            for place, name in enumerate(run.training_domains):
                before.setdefault(name, set()).update(run.training_domains[:place])
        seen = sorted(before, key=lambda name: (len(before[name]), name))
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
        finished = ((run.result, run.label) for run in self.runs if run.result is not None)
        return [result.model_copy(update={"method": label}) for result, label in finished]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return tuple(rule for rule in RULES if any(rule in each.rules for each in self.results))

    @cached_property
    def expected(self) -> tables.Expected:
        """What was planned; runs that are under way count, too."""
        one_backbone = len({backbone for _, backbone in self.rows}) == 1
        by_column = {run.column: tuple(run.unseen_domains) for run in self.runs}
        return tables.Expected(
            tuple(label for label, _ in self.rows) if one_backbone else (),
            tuple(by_column[column] for column in self.columns),
            self.seeds,
        )

    @cached_property
    def layout(self) -> tables.Layout:
        return tables.lay_out(self.results, self.expected)

    @cached_property
    def drawn(self) -> "Study":
        """The study as figures show it: the rows that there are colours for."""
        rows = set(self.rows[:MOST_DRAWN])
        return replace(self, runs=tuple(run for run in self.runs if run.row in rows))

    def under_rules(self, make: Callable[["Study", str], Iterable[Part]]) -> tuple[Part, ...]:
        """Returns the parts that are made for each selection rule."""
        return tuple(part for rule in self.rules for part in under_rule(rule, make(self, rule)))

    def built_tables(self, rule: str) -> list[tables.Table]:
        return tables.build_tables(self.results, rule, self.expected, self.metric)

    def numbers(self, rule: str, view: View = "out_of_domain") -> tables.Numbers:
        return tables.gather(self.results, rule, view, self.layout, self.metric)

    def row_name(self, row: MethodKey) -> str:
        several = len({backbone for _, backbone in self.rows}) > 1
        return f"{row[0]} ({row[1]})" if several else row[0]

    def color(self, row: MethodKey) -> int:
        """The row's place in the palette; beyond its end, none."""
        return min(self.rows.index(row), MOST_DRAWN)

    def tags(self, row: MethodKey, seed: int | None = None) -> tuple[str, ...]:
        """Returns what the boxes below the conclusion hide it by."""
        return (f"m{self.rows.index(row)}", *([] if seed is None else [f"s{seed}"]))

    def table_row(
        self, row: MethodKey, *values: PageCell | str | int | None, seed: int | None = None
    ) -> PageRow:
        """Returns a row of a table, in the method's colour and hidden together with it."""
        return page_row(*values, tags=self.tags(row, seed), color=self.color(row))

    def chart_row(
        self, row: MethodKey, marks: Iterable[Mark], text: str, points: Iterable[float] = ()
    ) -> ChartRow:
        """Returns a row of a chart, in the method's colour and hidden together with it."""
        look = (self.row_name(row), self.color(row))
        return ChartRow(*look, tuple(marks), text, self.tags(row), tuple(points))

    def legend(self, rows: Iterable[MethodKey] | None = None) -> tuple[Key, ...]:
        """Returns the methods with the colours of their lines."""
        return tuple(
            Key(self.row_name(row), self.color(row), "line", self.tags(row))
            for row in (self.rows if rows is None else rows)
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
        key = (run.settings["data"]["name"], setting, len(run.unseen_domains), metric or run.metric)
        groups.setdefault(key, []).append(run)
    methods = {name: place for place, name in enumerate(catalog.METHODS)}

    def place(run: Run) -> tuple[Any, ...]:
        rank = methods.get(run.method, len(methods))
        return run.backbone, run.upper_bound, run.place, rank, run.label, run.column, run.seed

    studies = []
    for key, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        by_row: dict[MethodKey, list[Run]] = {}
        for run in group:
            by_row.setdefault(run.row, []).append(run)
        ordered = sorted((run for own in by_row.values() for run in _name_apart(own)), key=place)
        common = Counter(run.rule for run in ordered).most_common(1)[0][0]
        study = Study(*key[:3], tuple(ordered), rule or common, key[3])
        studies.append(_best_first(study) if len(study.rows) > MOST_DRAWN else study)
    return studies


def _best_first(study: Study) -> Study:
    """Sorts the rows but the first, which others are compared to, by what they have in all domains
    or, without that, in any."""
    numbers = study.numbers(study.main_rule) if study.results else {}

    def score(row: MethodKey) -> tuple[bool, float]:
        by_column = numbers.get(row, {})
        whole = by_column.get(OVERALL)
        found = [v for each in ([whole] if whole else by_column.values()) for v in each.values()]
        return bool(whole), fmean(found) if found else 0.0

    first, *others = study.rows
    order = [first, *sorted(others, key=score, reverse=True)]
    return replace(study, runs=tuple(sorted(study.runs, key=lambda run: order.index(run.row))))
