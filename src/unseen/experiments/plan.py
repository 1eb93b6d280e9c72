"""Every run of a comparison or a sweep, all checked before the first one starts."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from unseen.config import Experiment, complete_settings, identity
from unseen.data.opening import OpenDatasets
from unseen.errors import SettingsError, unknown_name
from unseen.experiments.bases import SET_BY_THE_SWEEP, Base, find_bases, named_together
from unseen.experiments.feasibility import Built, no_pairs, obstacles, open_indexes
from unseen.experiments.plan_remarks import remarks_on_plan
from unseen.experiments.ranges import choices, range_mistakes, search_ranges
from unseen.experiments.sweep_file import Sweep
from unseen.recipe_files import nested, try_experiment
from unseen.records.folder import RunFolder, run_name, safe_name
from unseen.records.result import RunResult
from unseen.reports.gather import Expected
from unseen.selection import WITHOUT_LABELS
from unseen.settings.metrics import Metric
from unseen.training.execute import length


class Condition(NamedTuple):
    """What all draws that compete with each other have in common."""

    dataset: str
    method: str
    backbone: str
    unseen: tuple[str, ...]
    seed: int


class PlannedRun(NamedTuple):
    """One run of a plan."""

    condition: Condition
    draw: int
    searched: tuple[str, ...]
    """Dotted paths of the settings that draws change."""
    experiment: Experiment
    steps: int
    until: int | None = None
    """Pause at this step; empty: train to the end."""

    def folder(self, runs: Path) -> RunFolder:
        return RunFolder(runs / run_name(self.experiment))

    def read_result(self, runs: Path) -> RunResult:
        """Under the name that tables have for its row."""
        result = self.folder(runs).read_result()
        return result.model_copy(update={"method": self.condition.method})

    @property
    def values(self) -> dict[str, Any]:
        """The searched settings, as this run has them."""
        settings = complete_settings(self.experiment)
        return {path: reduce(getitem, path.split("."), settings) for path in self.searched}


@dataclass(frozen=True)
class Plan:
    """All runs. `pairs` are those with two domains held out."""

    name: str
    """Of a sweep; empty for a comparison."""
    sweep: Sweep
    singles: tuple[PlannedRun, ...]
    pairs: tuple[PlannedRun, ...] = ()
    remarks: tuple[str, ...] = ()
    """On the images, to be read before anything trains."""

    @cached_property
    def distinct(self) -> list[PlannedRun]:
        """Every run once: draws from few values may be the same run."""
        return list(
            {identity(run.experiment): run for run in (*self.pairs, *self.singles)}.values()
        )

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """All that its runs can be judged by; those without labels where every run adapts."""
        adapt = all(run.experiment.setting == "adaptation" for run in self.singles)
        if not adapt or self.sweep.pairs == "nested":
            return self.sweep.rules
        *others, oracle = self.sweep.rules
        return (*others, *WITHOUT_LABELS, oracle)

    @property
    def metric(self) -> Metric:
        """All runs of a plan are chosen and compared by one."""
        return self.singles[0].experiment.metric

    @property
    def size(self) -> int:
        """How many runs it takes; with nested pairs, not all draws are trained a second time."""
        if self.sweep.pairs == "nested":
            return len({identity(run.experiment) for run in self.pairs}) + len(self.draws)
        return len(self.distinct)

    @cached_property
    def draws(self) -> dict[Condition, list[PlannedRun]]:
        """Runs that a rule chooses from."""
        found: dict[Condition, list[PlannedRun]] = {}
        for run in self.singles:
            found.setdefault(run.condition, []).append(run)
        return found

    @cached_property
    def partners(self) -> dict[tuple[Condition, int], dict[str, PlannedRun]]:
        """For a condition and a draw: runs that hold out another domain, by its name, as well."""
        found: dict[tuple[Condition, int], dict[str, PlannedRun]] = {}
        for run in self.pairs:
            for target, other in (run.condition.unseen, run.condition.unseen[::-1]):
                condition = run.condition._replace(unseen=(target,))
                found.setdefault((condition, run.draw), {})[other] = run
        return found

    def label(self, run: PlannedRun) -> str:
        """What tells the run from the others, for people."""
        dataset, method, backbone, unseen, seed = run.condition
        several = len({(each.dataset, each.backbone) for each in self.draws}) > 1
        draw = f", draw {run.draw}" if len(self.draws) < len(self.singles) else ""
        where = f" ({dataset}, {backbone})" if several else ""
        return f"{method}{where}, unseen {'+'.join(unseen)}, seed {seed}{draw}"

    def expected(self, dataset: str) -> Expected:
        """Rows, columns and seeds of the dataset's tables, also of those without a result."""
        own = [condition for condition in self.draws if condition.dataset == dataset]
        return Expected(
            tuple(dict.fromkeys(condition.method for condition in own)),
            tuple(dict.fromkeys(condition.unseen for condition in own)),
            tuple(dict.fromkeys(condition.seed for condition in own)),
        )

    @property
    def folder_name(self) -> str:
        """Of the tables; another plan has another one."""
        together = "".join(identity(run.experiment) for run in (*self.pairs, *self.singles))
        unique = hashlib.sha256((together + self.sweep.pairs).encode()).hexdigest()[:8]
        first = self.singles[0].experiment
        parts = ("sweep", self.name) if self.name else (first.data.name, first.network.name)
        return "-".join((*map(safe_name, parts), unique))


def plan_sweep(sweep: Sweep, name: str) -> Plan:
    """Every run of a sweep; mistakes in its file are named all at once."""
    return make_plan(sweep, Path(name).stem, f"{name} is not a valid sweep", SET_BY_THE_SWEEP)


def make_plan(sweep: Sweep, name: str, complaint: str, chosen: Mapping[str, str]) -> Plan:
    """Every run; where something is wrong, the complaint and all there is to complain about."""
    bases, problems = find_bases(sweep, chosen)
    if bases:
        problems += range_mistakes(sweep, bases)
    if not problems and (sweep.draws or 1) > 1 and not any(search_ranges(sweep, b) for b in bases):
        problems.append("draws: no setting has a range, so all draws would be the same run")
    datasets = OpenDatasets()
    held_out: list[tuple[Base, list[tuple[str, ...]]]] = []
    if not problems:
        held_out, problems = _hold_out(sweep, bases, datasets)
    if problems:
        lines = "\n  ".join(dict.fromkeys(problems))
        raise SettingsError(f"{complaint}:\n  {lines}")
    runs = [run for base, domains in held_out for run in _runs(sweep, base, domains, datasets)]
    _check_one_metric(runs, complaint)
    domains = list(dict.fromkeys(run.condition.unseen for run in runs))

    def turn(run: PlannedRun) -> tuple[int, int, int]:
        """All methods on one domain before the next one: early on there is something to compare."""
        condition = run.condition
        return (
            sweep.datasets.index(condition.dataset),
            domains.index(condition.unseen),
            sweep.seeds.index(condition.seed),
        )

    runs.sort(key=turn)
    paired = sweep.pairs != "none"
    pairs = tuple(run for run in runs if paired and len(run.condition.unseen) == 2)
    singles = tuple(run for run in runs if not paired or len(run.condition.unseen) == 1)
    remarks = remarks_on_plan([run.experiment for run in singles], datasets)
    plan = Plan(name, sweep, singles, pairs, remarks)
    if sweep.rule not in plan.rules:
        raise SettingsError(
            f"{complaint}:\n  selection={sweep.rule} chooses by unlabelled target images, so all "
            "runs have to adapt: set settings.setting=adaptation, or another selection"
        )
    return plan


def _check_one_metric(runs: Sequence[PlannedRun], complaint: str) -> None:
    metrics = dict.fromkeys(run.experiment.metric for run in runs)
    if len(metrics) > 1:
        raise SettingsError(
            f"{complaint}:\n  metric: runs that are compared have one, found "
            f"{' and '.join(metrics)}; set the same for all of them"
        )


def _hold_out(
    sweep: Sweep, bases: Sequence[Base], datasets: OpenDatasets
) -> tuple[list[tuple[Base, list[tuple[str, ...]]]], list[str]]:
    """Which domains each method holds out, and what keeps it from training on the others."""
    opened, absent = open_indexes(bases, datasets)
    indexes = [index for index in opened if index is not None]
    if absent:
        there = ",".join(dict.fromkeys(b.dataset for b in bases if b.dataset not in absent))
        hint = [f"datasets: those at hand are {there}"] if there else []
        return [], [*(f"datasets: {name}: {why}" for name, why in absent.items()), *hint]
    everywhere = {domain for index in indexes for domain in index.domains}
    problems = [
        f"unseen: {unknown_name('domain', name, everywhere)}"
        for name in sweep.unseen
        if not any(named_together(name, index.domains) for index in indexes)
    ]
    found = []
    trainable = []
    built: Built = {}
    for base, index in zip(bases, indexes, strict=True):
        there = index.domains if sweep.unseen else index.labelled_domains
        held_out = base.targets(there, sweep.unseen)
        own: list[str] = []
        if sweep.has_pairs(base.dataset):
            own = list(no_pairs(base, held_out))
            held_out += base.pairs(index.labelled_domains, [target for (target, *_) in held_out])
        own += [] if own else obstacles(base, index, held_out, built)
        problems += own
        trainable += [] if own else [base.method]
        found.append((base, held_out))
    if trainable and len(trainable) < len(bases):
        without = ",".join(dict.fromkeys(trainable))
        problems.append(f"methods: those that can be trained like this are {without}")
    return found, problems


def _runs(
    sweep: Sweep, base: Base, held_out: Sequence[tuple[str, ...]], datasets: OpenDatasets
) -> Iterator[PlannedRun]:
    for unseen, seed in product(held_out, sweep.seeds):
        drawn = choices(sweep, base, seed)
        searched = tuple(dict.fromkeys(path for choice in drawn for path in choice))
        condition = Condition(base.dataset, base.row, base.experiment.network.name, unseen, seed)
        for draw, choice in enumerate(drawn):
            experiment, problems = try_experiment(base.hold_out(unseen, seed, nested(choice)))
            if experiment is None:
                raise SettingsError(
                    f"draw {draw} of {base.name} with seed {seed} is not valid:\n  "
                    + "\n  ".join((*problems, f"drawn: {choice}"))
                )
            steps = length(experiment, datasets)
            yield PlannedRun(condition, draw, searched, experiment, steps)
