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
from unseen.reports.tables import Expected
from unseen.results.folder import RunFolder, find_run, safe_name
from unseen.results.result import RunResult
from unseen.results.rules import WITHOUT_LABELS
from unseen.settings.experiment import Experiment, Metric, complete_settings
from unseen.settings.recipes import build_experiment, merge, nested, try_experiment
from unseen.sweeps.draws import Part, draws_of, find_parts, named_together, refuse
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
    """One run of a plan, or a row of its tables that was merged from several."""

    condition: Condition
    draw: int
    part: Part
    base: Mapping[str, Any]
    """The settings of all draws under its condition."""
    changes: Mapping[str, Any]
    """What the draw changes, by dotted path."""
    searched: tuple[str, ...]
    """Dotted paths of the settings that any draw changes."""
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

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen for it, without defaults. It is put together each time, because a plan
        may have 100,000 runs."""
        return merge(self.base, nested(self.changes))

    @property
    def experiment(self) -> Experiment:
        """Its complete settings."""
        return build_experiment(self.settings)

    @cached_property
    def result(self) -> RunResult:
        """The result of the finished run, under the name that tables have for its row."""
        row = self.condition.method
        return self.folder.read_result().model_copy(update={"method": row, "recipe": row})

    @property
    def values(self) -> dict[str, Any]:
        """The searched settings, as this run has them."""
        settings = complete_settings(self.experiment) if self.searched else {}
        return {path: reduce(getitem, path.split("."), settings) for path in self.searched}


@dataclass(frozen=True)
class Plan:
    """What a sweep consists of. Its settings, domains and methods are in order; its runs are listed
    when they are asked for."""

    name: str
    """Of a sweep; empty for a comparison."""
    sweep: Sweep
    runs: Path
    """The folder of runs."""
    parts: tuple[Part, ...]
    absent: Mapping[str, str]
    """Datasets that are not at hand, and why. They are counted by their published size."""
    datasets: OpenDatasets

    @cached_property
    def listed(self) -> tuple[PlannedRun, ...]:
        """Every run, in the order in which they are trained: all methods on one domain before the
        next one, so that early on there is something to compare. Those with two domains held out,
        where there are pairs, come first."""
        first: dict[str, Path] = {}
        listed = [
            replace(run, path=first.setdefault(run.identity, run.path))  # the same settings, once
            for part in self.parts
            for run in self._runs(part)
        ]
        domains = list(dict.fromkeys(run.condition.unseen for run in listed))

        def turn(run: PlannedRun) -> tuple[bool, int, int, int]:
            dataset, _, _, unseen, seed = run.condition
            return (
                not self._is_pair(run),
                self.sweep.datasets.index(dataset),
                domains.index(unseen),
                self.sweep.seeds.index(seed),
            )

        return tuple(sorted(listed, key=turn))

    def _runs(self, part: Part) -> Iterator[PlannedRun]:
        from unseen.training.execute import length

        draws = {seed: draws_of(self.sweep, part, seed) for seed in self.sweep.seeds}
        names = (path for drawn in draws.values() for values in drawn for path in values)
        searched = tuple(dict.fromkeys(names))
        for unseen, (seed, drawn) in product((*part.singles, *part.pairs), draws.items()):
            condition, base = Condition(*part.kind, unseen, seed), part.hold_out(unseen, seed)
            for draw, values in enumerate(drawn):
                experiment, problems = try_experiment(merge(base, nested(values)))
                if experiment is None:
                    raise SettingsError(
                        f"draw {draw} of {part.name} with seed {seed} is not valid:\n  "
                        + "\n  ".join((*problems, f"drawn: {values}"))
                    )
                steps = length(experiment, self.datasets)
                path = find_run(self.runs, experiment).path
                yield PlannedRun(condition, draw, part, base, values, searched, steps, path)

    def _is_pair(self, run: PlannedRun) -> bool:
        return self.sweep.pairs != "none" and len(run.condition.unseen) == 2

    @cached_property
    def pairs(self) -> tuple[PlannedRun, ...]:
        """Runs with two domains held out, by which leave-one-domain-out chooses."""
        return tuple(run for run in self.listed if self._is_pair(run))

    @cached_property
    def singles(self) -> tuple[PlannedRun, ...]:
        """All others: those that stand in tables."""
        return tuple(run for run in self.listed if not self._is_pair(run))

    @cached_property
    def distinct(self) -> list[PlannedRun]:
        """Every run once: draws from few values may be the same run."""
        return list({run.path: run for run in self.listed}.values())

    @property
    def is_comparison(self) -> bool:
        return not self.name

    @property
    def rule(self) -> str:
        """The rule whose tables are shown: for a comparison that of its runs' checkpoints."""
        return self.parts[0].experiment.selection if self.is_comparison else self.sweep.rule

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """All that its runs can be judged by; those without labels where every run adapts."""
        adapt = all(part.experiment.setting == "adaptation" for part in self.parts)
        if not adapt or self.sweep.pairs == "nested":
            return self.sweep.rules
        *others, oracle = self.sweep.rules
        return (*others, *WITHOUT_LABELS, oracle)

    @property
    def metric(self) -> Metric:
        """All runs of a plan are chosen and compared by one."""
        return self.parts[0].experiment.metric

    @property
    def count(self) -> int:
        """How many runs there are, counted without listing them."""
        return sum(part.count(self.sweep) for part in self.parts)

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
    def partners(self) -> dict[Condition, dict[int, dict[str, PlannedRun]]]:
        """For a condition, by draw: runs that hold out another domain, by its name, as well."""
        found: dict[Condition, dict[int, dict[str, PlannedRun]]] = {}
        for run in self.pairs:
            for target, other in (run.condition.unseen, run.condition.unseen[::-1]):
                by_draw = found.setdefault(run.condition._replace(unseen=(target,)), {})
                by_draw.setdefault(run.draw, {})[other] = run
        return found

    @cached_property
    def has_several_kinds(self) -> bool:
        """Whether methods alone do not tell rows apart."""
        return (
            len({(dataset, backbone) for dataset, _, backbone in (p.kind for p in self.parts)}) > 1
        )

    def label(self, run: PlannedRun) -> str:
        """Return what tells the run from the others, for people."""
        dataset, method, backbone, unseen, seed = run.condition
        draw = f", draw {run.draw}" if len(self.draws) < len(self.singles) else ""
        where = f" ({dataset}, {backbone})" if self.has_several_kinds else ""
        return f"{method}{where}, unseen {'+'.join(unseen)}, seed {seed}{draw}"

    def expected(self, dataset: str) -> Expected:
        """Return rows, columns and seeds of the dataset's tables, also of those without a
        result."""
        own = [condition for condition in self.draws if condition.dataset == dataset]
        return Expected(
            tuple(dict.fromkeys(condition.method for condition in own)),
            tuple(dict.fromkeys(condition.unseen for condition in own)),
            tuple(dict.fromkeys(condition.seed for condition in own)),
        )

    @cached_property
    def home(self) -> Path:
        """The folder of its tables; another plan has another one."""
        together = "".join(run.identity for run in self.listed)
        unique = hashlib.sha256((together + self.sweep.pairs).encode()).hexdigest()[:8]
        first = self.parts[0].experiment
        stem = Path(self.name).stem
        parts = (first.data.name, first.network.name) if self.is_comparison else ("sweep", stem)
        return self.runs / "tables" / "-".join((*map(safe_name, parts), unique))

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What has to be said about the images of each dataset before anything trains, over all
        domains that train in any run; of validation images, about the run with the fewest."""
        found: list[str] = []
        by_dataset = {part.experiment.data.name: part for part in reversed(self.parts)}
        for name, first in by_dataset.items():
            index = self.datasets.open(first.experiment.data).index()
            trained = {
                frozenset(d for d in part.experiment.data.training_domains or index.domains)
                - {*unseen}
                for part in self.parts
                for unseen in part.singles
                if part.experiment.data.name == name
            }
            together = [name for name in index.domains if any(name in names for names in trained)]
            shown = {"training_domains": tuple(together), "unseen_domain": ()}
            try:
                roles = choose_roles(index, first.experiment.data.model_copy(update=shown))
            except UnseenError:  # a run reports what is wrong with it
                continue
            number = {name: len(rows) for name, rows in roles.validation.items()}
            fewest = min(sum(number[name] for name in names) for names in trained)
            found += warnings_about_images(index, roles, first.experiment, fewest)
        return tuple(dict.fromkeys(found))


def plan_sweep(sweep: Sweep, name: str, runs: str | Path = "runs", *, dry: bool = False) -> Plan:
    """Plan a sweep, or a comparison, which has no name. Every mistake is named at once; of a `dry`
    run, which only counts them, datasets that are not at hand are none."""
    datasets = OpenDatasets()
    found = find_parts(sweep, name)
    indexes = _open_indexes(found, datasets)
    known = [index for index in indexes if isinstance(index, Index)]
    absent = {p.dataset: i for p, i in zip(found, indexes, strict=True) if isinstance(i, str)}
    everywhere = {domain for index in known for domain in index.domains}
    problems = [
        f"unseen: {unknown_name('domain', each, everywhere)}"
        for each in sweep.unseen
        if not absent and not any(named_together(each, index.domains) for index in known)
    ]
    parts: list[Part] = []
    trainable: list[str] = []
    built: dict[tuple[str, int, int], str] = {}
    for base, index in zip(found, indexes, strict=True):
        part = _with_images(sweep, base, index)
        if part is None:
            continue
        parts.append(part)
        own = list(_why_no_pairs(part)) if part.pairs else []
        if not own and isinstance(index, Index):
            own = list(_obstacles(part, index, built))
        problems += own
        trainable += [] if own else [part.method]
    if trainable and len(trainable) < len(parts):
        without = ",".join(dict.fromkeys(trainable))
        problems.append(f"methods: those that can be trained like this are {without}")
    if not dry:
        at_hand = dict.fromkeys(part.dataset for part in parts if part.dataset not in absent)
        hint = [f"datasets: those at hand are {','.join(at_hand)}"] if at_hand and absent else []
        problems += [*(f"datasets: {each}: {why}" for each, why in absent.items()), *hint]
    plan = Plan(name, sweep, Path(runs), tuple(parts), absent, datasets)
    refuse(name, problems + list(_not_comparable(plan)))
    return plan


def _open_indexes(parts: Sequence[Part], datasets: OpenDatasets) -> list[Index | str]:
    """Open the index of each part's dataset; where it is not at hand, say why."""
    found: list[Index | str] = []
    for part in parts:
        try:
            found.append(datasets.open(part.experiment.data).index())
        except DataError as error:
            if len({each.dataset for each in parts}) == 1:
                raise
            found.append(str(error))
    return found


def _with_images(sweep: Sweep, part: Part, index: Index | str) -> Part | None:
    """Add what is held out. A dataset that is not at hand has its published number of domains,
    whatever they are called; without such a number nothing is known of it."""
    if isinstance(index, Index):
        labelled = index.labelled_domains
        size = Published("", len(labelled), len(index.classes), len(index))
        return part.with_images(sweep, index.domains, labelled, size)
    size = PUBLISHED.get(part.experiment.data.name)
    if size is None or not size.domains:
        return None
    domains = tuple(f"domain {number}" for number in range(size.domains))
    return part.with_images(sweep.model_copy(update={"unseen": ()}), domains, domains, size)


def _not_comparable(plan: Plan) -> Iterator[str]:
    """Say what keeps the runs out of one table, or the chosen rule from judging them."""
    metrics = dict.fromkeys(part.experiment.metric for part in plan.parts)
    if len(metrics) > 1:
        yield (
            f"metric: runs that are compared have one, found {' and '.join(metrics)}; set the same "
            "for all of them"
        )
    elif plan.parts and plan.rule not in plan.rules:
        key = "settings.setting" if plan.name else "setting"
        yield (
            f"selection={plan.rule} chooses by unlabelled target images, so all runs have to "
            f"adapt: set {key}=adaptation, or another selection"
        )


def _why_no_pairs(part: Part) -> Iterator[str]:
    """Say why no other domain can be held out beside each of these."""
    if part.experiment.setting == "adaptation":
        yield (
            f"pairs: {part.name} adapts to one target domain, so it cannot hold out two; "
            "leave the method out, or set pairs=none"
        )
    together = next((domains for domains in part.singles if len(domains) > 1), None)
    if together:
        yield (
            f"pairs: {'+'.join(together)} are held out together already; name single domains, or "
            "set pairs=none"
        )


def _obstacles(part: Part, index: Index, built: dict[tuple[str, int, int], str]) -> Iterator[str]:
    """Say what keeps a method from training, once for each number of domains that are left to it.

    `built` keeps what building a method said, by its settings without those of the data and the
    numbers of domains and classes: datasets that are alike in these build the same.
    """
    tried: set[int] = set()
    for domains in (*part.singles, *part.pairs):
        if len(domains) not in tried:
            tried.add(len(domains))
            try:
                experiment = build_experiment(part.hold_out(domains, seed=0), part.name)
                error = _obstacle(experiment, index, built)
            except UnseenError as caught:
                error = str(caught)
            if error:
                yield f"{part.name} with {'+'.join(domains)} held out: {error}"


def _obstacle(experiment: Experiment, index: Index, built: dict[tuple[str, int, int], str]) -> str:
    """Build the method as it would start, but with random weights: nothing is downloaded."""
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
    task = build_task(index, experiment)
    key = (experiment.model_dump_json(exclude={"data"}), len(task.domains), len(task.classes))
    if key not in built:
        built[key] = ""
        try:
            build_method(experiment, task)
        except UnseenError as error:
            built[key] = str(error)
    return built[key]
