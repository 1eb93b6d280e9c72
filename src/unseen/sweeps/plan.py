"""Every run of a comparison or a sweep, all checked before the first one starts."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from unseen.data.dataset import Index, OpenDatasets
from unseen.data.roles import choose_roles, warnings_about_images
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.reports.gather import Expected
from unseen.results.folder import RunFolder, find_run, safe_name
from unseen.results.result import RunResult
from unseen.results.rules import WITHOUT_LABELS
from unseen.settings.experiment import Experiment, Metric, complete_settings, identity
from unseen.settings.recipes import build_experiment, nested, try_experiment
from unseen.sweeps.bases import (
    SET_BY_THE_SWEEP,
    Base,
    choices,
    find_bases,
    named_together,
    range_mistakes,
    search_ranges,
)
from unseen.sweeps.draws import Sweep
from unseen.training.build import (
    build_method,
    build_sampler,
    build_task,
    count_steps,
    looks_at_target,
)
from unseen.training.build_average import check_averaging
from unseen.training.execute import length


def no_pairs(base: Base, held_out: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Why no other domain can be held out beside each of these."""
    if base.experiment.setting == "adaptation":
        yield (
            f"pairs: {base.name} adapts to one target domain, so it cannot hold out two; "
            "leave the method out, or set pairs=none"
        )
    together = next((domains for domains in held_out if len(domains) > 1), None)
    if together:
        yield (
            f"pairs: {'+'.join(together)} are held out together already; name single domains, or "
            "set pairs=none"
        )


Built = dict[tuple[str, int, int], str]
"""What building a method said, by its settings without those of the data, and the numbers of
domains and classes: datasets that are alike in these build the same."""


def open_indexes(
    bases: Sequence[Base], datasets: OpenDatasets
) -> tuple[list[Index | None], dict[str, str]]:
    """The index of each base's dataset, none where it is not at hand; and why not, by dataset."""
    found: list[Index | None] = []
    absent: dict[str, str] = {}
    for base in bases:
        try:
            found.append(datasets.open(base.experiment.data).index())
        except DataError as error:
            if len({each.dataset for each in bases}) == 1:
                raise
            absent[base.dataset] = str(error)
            found.append(None)
    return found, absent


def obstacles(
    base: Base, index: Index, held_out: Sequence[tuple[str, ...]], built: Built
) -> Iterator[str]:
    """What keeps a method from training, once for each number of domains that are left to it."""
    tried: set[int] = set()
    for domains in held_out:
        left = len(base.experiment.data.training_domains or index.labelled_domains) - len(domains)
        if left in tried:
            continue
        tried.add(left)
        try:
            error = _obstacle(
                build_experiment(base.hold_out(domains, seed=0), base.name), index, built
            )
        except UnseenError as caught:
            error = str(caught)
        if error:
            yield f"{base.name} with {'+'.join(domains)} held out: {error}"


def _obstacle(experiment: Experiment, index: Index, built: Built) -> str:
    """Builds the method as it would start, but with random weights: nothing is downloaded."""
    looks_at_target(experiment)
    roles = choose_roles(index, experiment.data, experiment.setting)
    check_averaging(experiment, count_steps(experiment, build_sampler(experiment, roles)))
    network = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": network})
    about = experiment.model_dump_json(exclude={"data"})
    task = build_task(index, experiment)
    key = (about, len(task.domains), len(task.classes))
    if key not in built:
        built[key] = ""
        try:
            build_method(experiment, task)
        except UnseenError as error:
            built[key] = str(error)
    return built[key]


def remarks_on_plan(experiments: Sequence[Experiment], datasets: OpenDatasets) -> tuple[str, ...]:
    """Of each dataset, over all domains that train in any run; validation is that of the run which
    has the fewest images for it."""
    by_dataset: dict[str, list[Experiment]] = {}
    for each in experiments:
        by_dataset.setdefault(each.data.name, []).append(each)
    found = [each for own in by_dataset.values() for each in _of_dataset(own, datasets)]
    return tuple(dict.fromkeys(found))


def _of_dataset(experiments: Sequence[Experiment], datasets: OpenDatasets) -> Iterator[str]:
    first = experiments[0]
    index = datasets.open(first.data).index()
    trained = {frozenset(_training_domains(each, index.domains)) for each in experiments}
    together = [name for name in index.domains if any(name in names for names in trained)]
    shown = {"training_domains": tuple(together), "unseen_domain": ()}
    everything = first.data.model_copy(update=shown)
    try:
        roles = choose_roles(index, everything)
    except UnseenError:  # a run reports what is wrong with it
        return
    number = {name: len(rows) for name, rows in roles.validation.items()}
    fewest = min(sum(number[name] for name in names) for names in trained)
    yield from warnings_about_images(index, roles, first, fewest)


def _training_domains(experiment: Experiment, domains: Sequence[str]) -> list[str]:
    data = experiment.data
    return [d for d in data.training_domains or domains if d not in data.unseen_domain]


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
        return find_run(runs, self.experiment)

    def read_result(self, runs: Path) -> RunResult:
        """Under the name that tables have for its row."""
        result = self.folder(runs).read_result()
        name = self.condition.method
        return result.model_copy(update={"method": name, "recipe": name})

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
    first: dict[str, Experiment] = {}  # rows that have the same settings share one run
    runs = [
        run._replace(experiment=first.setdefault(identity(run.experiment), run.experiment))
        for run in runs
    ]
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
