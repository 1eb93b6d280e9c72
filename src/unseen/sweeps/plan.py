"""Every run of a comparison or a sweep, all checked before the first one starts.

A comparison is a sweep without a name and with one draw: the recipe as it is.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from unseen.data.dataset import PUBLISHED, OpenDatasets, Published
from unseen.data.index import Index
from unseen.data.roles import choose_roles, warnings_about_images
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.reports.gather import Expected
from unseen.results.folder import RunFolder, find_run, safe_name
from unseen.results.result import RunResult
from unseen.results.rules import WITHOUT_LABELS
from unseen.settings.experiment import Experiment, Metric, complete_settings
from unseen.settings.recipes import build_experiment, nested, try_experiment
from unseen.sweeps.draws import Base, check_sweep, draws_of, named_together, refuse
from unseen.sweeps.sweep_file import Sweep


class Condition(NamedTuple):
    """What all draws that compete with each other have in common."""

    dataset: str
    method: str
    backbone: str
    unseen: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    condition: Condition
    draw: int
    searched: tuple[str, ...]
    """Dotted paths of the settings that draws change."""
    experiment: Experiment
    steps: int
    path: Path
    """Its run folder, which is there or will be."""
    until: int | None = None
    """Pause at this step; empty: train to the end."""

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)

    @property
    def identity(self) -> str:
        """The hash of the settings that decide the result, with which the folder's name ends."""
        return self.path.name.rpartition("-")[2]

    @cached_property
    def result(self) -> RunResult:
        """The result of the finished run, under the name that tables have for its row."""
        return named_result(self.folder, self.condition.method)

    @property
    def values(self) -> dict[str, Any]:
        """The searched settings, as this run has them."""
        settings = complete_settings(self.experiment)
        return {path: reduce(getitem, path.split("."), settings) for path in self.searched}


def named_result(folder: RunFolder, row: str) -> RunResult:
    """A finished run's result, under the name of a row."""
    return folder.read_result().model_copy(update={"method": row, "recipe": row})


@dataclass(frozen=True)
class Plan:
    """All runs. `pairs` are those with two domains held out."""

    name: str
    """Of a sweep; empty for a comparison."""
    sweep: Sweep
    runs: Path
    """The folder of runs."""
    singles: tuple[PlannedRun, ...]
    pairs: tuple[PlannedRun, ...] = ()
    remarks: tuple[str, ...] = ()
    """On the images, to be read before anything trains."""

    @cached_property
    def distinct(self) -> list[PlannedRun]:
        """Every run once: draws from few values may be the same run."""
        return list({run.path: run for run in (*self.pairs, *self.singles)}.values())

    @property
    def is_comparison(self) -> bool:
        return not self.name

    @property
    def rule(self) -> str:
        """The rule whose tables are shown: for a comparison that of its runs' checkpoints."""
        return self.singles[0].experiment.selection if self.is_comparison else self.sweep.rule

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
            return len({run.path for run in self.pairs}) + len(self.draws)
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

    @cached_property
    def has_several_kinds(self) -> bool:
        """Whether methods alone do not tell rows apart."""
        return len({(each.dataset, each.backbone) for each in self.draws}) > 1

    def label(self, run: PlannedRun) -> str:
        """What tells the run from the others, for people."""
        dataset, method, backbone, unseen, seed = run.condition
        draw = f", draw {run.draw}" if len(self.draws) < len(self.singles) else ""
        where = f" ({dataset}, {backbone})" if self.has_several_kinds else ""
        return f"{method}{where}, unseen {'+'.join(unseen)}, seed {seed}{draw}"

    def expected(self, dataset: str) -> Expected:
        """Rows, columns and seeds of the dataset's tables, also of those without a result."""
        own = [condition for condition in self.draws if condition.dataset == dataset]
        return Expected(
            tuple(dict.fromkeys(condition.method for condition in own)),
            tuple(dict.fromkeys(condition.unseen for condition in own)),
            tuple(dict.fromkeys(condition.seed for condition in own)),
        )

    @cached_property
    def home(self) -> Path:
        """The folder of its tables; another plan has another one."""
        together = "".join(run.identity for run in (*self.pairs, *self.singles))
        unique = hashlib.sha256((together + self.sweep.pairs).encode()).hexdigest()[:8]
        first = self.singles[0].experiment
        parts = ("sweep", self.name)
        if self.is_comparison:
            parts = (first.data.name, first.network.name)
        return self.runs / "tables" / "-".join((*map(safe_name, parts), unique))


class Part(NamedTuple):
    """All runs of one method on one dataset and backbone, before they are listed."""

    base: Base
    size: Published
    singles: Sequence[tuple[str, ...]]
    """Domains, or groups of them, that are held out in turn."""
    pairs: Sequence[tuple[str, ...]]

    @property
    def steps(self) -> float:
        """The length of a run, whose number of epochs counts images of the published size."""
        experiment, size = self.base.experiment, self.size
        data = experiment.data
        share = (1 - data.validation_share - data.test_share) / size.domains
        per_epoch = size.images * share / experiment.images_per_domain
        return experiment.steps or (experiment.epochs or 0) * per_epoch

    def count(self, sweep: Sweep) -> int:
        """The number of runs."""
        draws = len(draws_of(sweep, self.base, sweep.seeds[0]))
        singles = len(self.singles) * (1 if sweep.pairs == "nested" else draws)
        return (singles + len(self.pairs) * draws) * len(sweep.seeds)


class Outline(NamedTuple):
    """A sweep whose settings, domains and methods are in order: how many runs there are of what."""

    sweep: Sweep
    name: str
    parts: tuple[Part, ...]
    absent: Mapping[str, str]
    """Datasets that are not at hand, and why. They are counted by their published size."""
    datasets: OpenDatasets

    @property
    def size(self) -> int:
        return sum(part.count(self.sweep) for part in self.parts)

    def plan(self, runs: str | Path) -> Plan:
        """Every single run, in the order in which they are trained."""
        refuse(self.name, self._absences())
        home = Path(runs)
        first: dict[Path, PlannedRun] = {}
        listed: list[PlannedRun] = []
        for run in (run for part in self.parts for run in self._runs(part, home)):
            known = first.setdefault(run.path, run)  # rows with the same settings share one run
            listed.append(replace(run, experiment=known.experiment))
        metrics = dict.fromkeys(run.experiment.metric for run in listed)
        if len(metrics) > 1:
            found = " and ".join(metrics)
            problem = f"metric: runs that are compared have one, found {found}; set the same"
            refuse(self.name, [f"{problem} for all of them"])
        self._sort(listed)
        paired = self.sweep.pairs != "none"
        pairs = tuple(run for run in listed if paired and len(run.condition.unseen) == 2)
        singles = tuple(run for run in listed if not paired or len(run.condition.unseen) == 1)
        remarks = _remarks([run.experiment for run in singles], self.datasets)
        plan = Plan(Path(self.name).stem, self.sweep, home, singles, pairs, remarks)
        if plan.rule not in plan.rules:
            problem = f"selection={plan.rule} chooses by unlabelled target images, so all runs have"
            key = "settings.setting" if self.name else "setting"
            refuse(self.name, [f"{problem} to adapt: set {key}=adaptation, or another selection"])
        return plan

    def _absences(self) -> list[str]:
        datasets = dict.fromkeys(part.base.dataset for part in self.parts)
        there = ",".join(name for name in datasets if name not in self.absent)
        hint = [f"datasets: those at hand are {there}"] if there and self.absent else []
        return [*(f"datasets: {name}: {why}" for name, why in self.absent.items()), *hint]

    def _runs(self, part: Part, runs: Path) -> Iterator[PlannedRun]:
        from unseen.training.execute import length

        base = part.base
        for unseen, seed in product((*part.singles, *part.pairs), self.sweep.seeds):
            drawn = draws_of(self.sweep, base, seed)
            searched = tuple(dict.fromkeys(path for values in drawn for path in values))
            backbone = base.experiment.network.name
            condition = Condition(base.dataset, base.row, backbone, unseen, seed)
            for draw, values in enumerate(drawn):
                experiment, problems = try_experiment(base.hold_out(unseen, seed, nested(values)))
                if experiment is None:
                    raise SettingsError(
                        f"draw {draw} of {base.name} with seed {seed} is not valid:\n  "
                        + "\n  ".join((*problems, f"drawn: {values}"))
                    )
                steps = length(experiment, self.datasets)
                path = find_run(runs, experiment).path
                yield PlannedRun(condition, draw, searched, experiment, steps, path)

    def _sort(self, listed: list[PlannedRun]) -> None:
        """All methods on one domain before the next one: early on there is something to compare."""
        domains = list(dict.fromkeys(run.condition.unseen for run in listed))

        def turn(run: PlannedRun) -> tuple[int, int, int]:
            return (
                self.sweep.datasets.index(run.condition.dataset),
                domains.index(run.condition.unseen),
                self.sweep.seeds.index(run.condition.seed),
            )

        listed.sort(key=turn)


def plan_sweep(sweep: Sweep, name: str, runs: str | Path = "runs") -> Plan:
    """Every run of a sweep; mistakes in its file are named all at once."""
    return outline_sweep(sweep, name).plan(runs)


def outline_sweep(sweep: Sweep, name: str) -> Outline:
    """What a sweep consists of, or an error that names every mistake. Datasets that are not at hand
    are no mistake yet: a dry run counts them."""
    bases = check_sweep(sweep, name)
    datasets = OpenDatasets()
    indexes, absent = _open_indexes(bases, datasets)
    known = [index for index in indexes if index is not None]
    everywhere = {domain for index in known for domain in index.domains}
    problems = [
        f"unseen: {unknown_name('domain', name, everywhere)}"
        for name in sweep.unseen
        if not absent and not any(named_together(name, index.domains) for index in known)
    ]
    parts: list[Part] = []
    trainable: list[str] = []
    built: dict[tuple[str, int, int], str] = {}
    for base, index in zip(bases, indexes, strict=True):
        part = _part(sweep, base, index)
        if part is None:
            continue
        parts.append(part)
        own = list(_why_no_pairs(base, part.singles)) if part.pairs else []
        if not own and index is not None:
            own = list(_obstacles(base, index, [*part.singles, *part.pairs], built))
        problems += own
        trainable += [] if own else [base.method]
    if trainable and len(trainable) < len(parts):
        without = ",".join(dict.fromkeys(trainable))
        problems.append(f"methods: those that can be trained like this are {without}")
    refuse(name, problems)
    return Outline(sweep, name, tuple(parts), absent, datasets)


def _open_indexes(
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


def _part(sweep: Sweep, base: Base, index: Index | None) -> Part | None:
    """What is held out on a dataset. One that is not at hand has its published number of domains,
    whatever they are called; without such a number nothing is known of it."""
    if index is None:
        size = PUBLISHED.get(base.experiment.data.name)
        if size is None or not size.domains:
            return None
        domains = labelled = tuple(f"domain {number}" for number in range(size.domains))
        singles = base.targets(domains, ())
    else:
        labelled = index.labelled_domains
        size = Published("", len(labelled), len(index.classes), len(index))
        singles = base.targets(index.domains if sweep.unseen else labelled, sweep.unseen)
    pairs: list[tuple[str, ...]] = []
    if sweep.has_pairs(base.dataset):
        pairs = base.pairs(labelled, [target for (target, *_) in singles])
    return Part(base, size, singles, pairs)


def _why_no_pairs(base: Base, held_out: Sequence[tuple[str, ...]]) -> Iterator[str]:
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


def _obstacles(
    base: Base,
    index: Index,
    held_out: Sequence[tuple[str, ...]],
    built: dict[tuple[str, int, int], str],
) -> Iterator[str]:
    """What keeps a method from training, once for each number of domains that are left to it.

    `built` keeps what building a method said, by its settings without those of the data and the
    numbers of domains and classes: datasets that are alike in these build the same.
    """
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


def _obstacle(experiment: Experiment, index: Index, built: dict[tuple[str, int, int], str]) -> str:
    """Builds the method as it would start, but with random weights: nothing is downloaded."""
    from unseen.training.average import check_averaging
    from unseen.training.build import (
        build_method,
        build_sampler,
        build_task,
        check_target_use,
        count_steps,
    )

    check_target_use(experiment)
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


def _remarks(experiments: Sequence[Experiment], datasets: OpenDatasets) -> tuple[str, ...]:
    """What has to be said about the images of each dataset, over all domains that train in any run;
    of validation images, about the run that has the fewest."""
    by_dataset: dict[str, list[Experiment]] = {}
    for each in experiments:
        by_dataset.setdefault(each.data.name, []).append(each)
    found: list[str] = []
    for own in by_dataset.values():
        first = own[0]
        index = datasets.open(first.data).index()
        trained = {frozenset(_training_domains(each, index.domains)) for each in own}
        together = [name for name in index.domains if any(name in names for names in trained)]
        shown = {"training_domains": tuple(together), "unseen_domain": ()}
        try:
            roles = choose_roles(index, first.data.model_copy(update=shown))
        except UnseenError:  # a run reports what is wrong with it
            continue
        number = {name: len(rows) for name, rows in roles.validation.items()}
        fewest = min(sum(number[name] for name in names) for names in trained)
        found += warnings_about_images(index, roles, first, fewest)
    return tuple(dict.fromkeys(found))


def _training_domains(experiment: Experiment, domains: Sequence[str]) -> list[str]:
    data = experiment.data
    return [d for d in data.training_domains or domains if d not in data.unseen_domain]
