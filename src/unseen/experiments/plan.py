"""From a sweep file to the settings of every run, all checked before the first one starts."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from unseen import catalog
from unseen.config import Experiment, complete_settings, identity
from unseen.data.dataset import Index
from unseen.data.opening import open_dataset
from unseen.errors import SettingsError, unknown_name
from unseen.experiments.compare import base_settings, domains_to_hold_out, hold_out
from unseen.experiments.ranges import (
    SET_BY_THE_SWEEP,
    Base,
    choices,
    range_mistakes,
    search_ranges,
)
from unseen.experiments.sweep_file import MethodPart, Sweep, not_valid
from unseen.recipe_files import merge, nested, recipe_names, try_experiment
from unseen.records.folder import RunFolder, run_name, safe_name


class Place(NamedTuple):
    """What the draws of one choice have in common."""

    dataset: str
    method: str
    backbone: str
    unseen: tuple[str, ...]
    seed: int

    def __str__(self) -> str:
        unseen = "+".join(self.unseen)
        return f"{self.method} ({self.dataset}, {self.backbone}), unseen {unseen}, seed {self.seed}"


class Trial(NamedTuple):
    """One run of a sweep."""

    place: Place
    draw: int
    searched: tuple[str, ...]
    """Dotted paths of the settings that draws change."""
    experiment: Experiment

    def __str__(self) -> str:
        return f"{self.place}, draw {self.draw}"

    def folder(self, runs: Path) -> RunFolder:
        return RunFolder(runs / run_name(self.experiment))

    @property
    def values(self) -> dict[str, Any]:
        """The searched settings, as this run has them."""
        found = {}
        settings = complete_settings(self.experiment)
        for path in self.searched:
            value: Any = settings
            for key in path.split("."):
                value = value[key]
            found[path] = value
        return found


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep. `pairs` are those with two domains held out."""

    name: str
    sweep: Sweep
    singles: tuple[Trial, ...]
    pairs: tuple[Trial, ...]

    @cached_property
    def distinct(self) -> list[Trial]:
        """Every run once: draws from few values may be the same run."""
        by_identity = {identity(trial.experiment): trial for trial in (*self.pairs, *self.singles)}
        return list(by_identity.values())

    @property
    def size(self) -> int:
        """How many runs it takes; with nested pairs, not all draws are trained a second time."""
        if self.sweep.pairs == "nested":
            return len({identity(trial.experiment) for trial in self.pairs}) + len(self.groups)
        return len(self.distinct)

    @cached_property
    def groups(self) -> dict[Place, list[Trial]]:
        """Draws that a rule chooses from."""
        groups: dict[Place, list[Trial]] = {}
        for trial in self.singles:
            groups.setdefault(trial.place, []).append(trial)
        return groups

    @cached_property
    def partners(self) -> dict[tuple[Place, int], dict[str, Trial]]:
        """For a place and a draw: runs in which another domain, by its name, is held out, too."""
        found: dict[tuple[Place, int], dict[str, Trial]] = {}
        for trial in self.pairs:
            for target in trial.place.unseen:
                (other,) = (domain for domain in trial.place.unseen if domain != target)
                place = trial.place._replace(unseen=(target,))
                found.setdefault((place, trial.draw), {})[other] = trial
        return found

    @property
    def folder_name(self) -> str:
        """Of the tables; another plan has another one."""
        together = "".join(identity(trial.experiment) for trial in (*self.pairs, *self.singles))
        unique = hashlib.sha256((together + self.sweep.pairs).encode()).hexdigest()[:8]
        return f"sweep-{safe_name(self.name)}-{unique}"


def plan_sweep(sweep: Sweep, name: str) -> Plan:
    """Every run; mistakes in the file are named all at once."""
    bases, problems = _bases(sweep)
    if bases:
        problems += range_mistakes(sweep, bases)
    if not problems and (sweep.draws or 1) > 1 and not any(search_ranges(sweep, b) for b in bases):
        problems.append("draws: no setting has a range, so all draws would be the same run")
    indexes = _Indexes()
    tasks: list[tuple[Base, Sequence[str]]] = []
    if not problems:
        tasks, problems = _tasks(sweep, bases, indexes)
    if problems:
        raise not_valid(name, dict.fromkeys(problems))
    singles: list[Trial] = []
    pairs: list[Trial] = []
    for base, targets in tasks:
        singles += _trials(sweep, base, [(target,) for target in targets])
        if sweep.pairs != "none":
            pairs += _trials(sweep, base, indexes.pairs(base.first, targets))
    return Plan(Path(name).stem, sweep, tuple(singles), tuple(pairs))


class _Indexes:
    """Datasets are looked through once, however many runs they have."""

    def __init__(self) -> None:
        self._known: dict[str, Index] = {}

    def of(self, experiment: Experiment) -> Index:
        data = experiment.data.model_copy(update={"training_domains": (), "unseen_domain": ()})
        key = data.model_dump_json()
        if key not in self._known:
            self._known[key] = open_dataset(data).index()
        return self._known[key]

    def pairs(self, first: Experiment, targets: Sequence[str]) -> list[tuple[str, ...]]:
        """Each target with each other domain that would train, in the order of the dataset."""
        domains = self.of(first).domains
        others = [d for d in domains if d in (first.data.training_domains or domains)]
        found = {frozenset((t, o)) for t in targets for o in others if t != o}
        return sorted(
            (tuple(sorted(pair, key=domains.index)) for pair in found),
            key=lambda pair: [domains.index(domain) for domain in pair],
        )


def _bases(sweep: Sweep) -> tuple[list[Base], list[str]]:
    """Settings before domains, seeds and draws; and what is wrong with them."""
    families = sorted({name.partition("/")[0] for name in recipe_names()})
    problems = [
        f"datasets: {unknown_name('dataset with recipes', name, families)}"
        for name in sweep.datasets
        if name not in families
    ]
    methods = list(catalog.METHODS) if sweep.methods == ("all",) else sweep.methods
    for section in (sweep.settings, *(part.settings for part in sweep.by_method.values())):
        problems += _set_elsewhere(section)
    bases = []
    datasets = [name for name in sweep.datasets if name in families]
    for dataset, method, backbone in product(datasets, methods, sweep.backbones or (None,)):
        try:
            settings = merge(base_settings(dataset, method), sweep.settings)
        except SettingsError as error:
            problems.append(f"methods: {error}")
            continue
        settings = merge(settings, sweep.by_method.get(method, MethodPart()).settings)
        if backbone is not None:
            settings = merge(settings, {"network": {"name": backbone}})
        first, mistakes = try_experiment(settings)
        problems += [f"settings: {mistake} ({dataset}/{method})" for mistake in mistakes]
        if first is not None:
            bases.append(Base(dataset, method, settings, first))
    return bases, problems


def _set_elsewhere(settings: Mapping[str, Any]) -> Iterator[str]:
    for path, key in SET_BY_THE_SWEEP.items():
        section, _, name = path.rpartition(".")
        inside = settings.get(section) if section else settings
        if isinstance(inside, Mapping) and name in inside:
            yield f"settings.{path}: is chosen by '{key}'"


def _tasks(
    sweep: Sweep, bases: list[Base], indexes: _Indexes
) -> tuple[list[tuple[Base, Sequence[str]]], list[str]]:
    """Which domains each method holds out, and whether it can."""
    from unseen.experiments.feasibility import why_not

    problems: list[str] = []
    tasks = []
    everywhere = [domain for base in bases for domain in indexes.of(base.first).domains]
    for name in sweep.unseen:
        if name not in everywhere:
            problems.append(f"unseen: {unknown_name('domain', name, set(everywhere))}")
    for base in bases:
        index = indexes.of(base.first)
        wanted = [name for name in sweep.unseen if name in index.domains]
        if sweep.unseen and not wanted:
            continue
        targets = domains_to_hold_out(base.first, index.domains, wanted)
        held_out = [(target,) for target in targets]
        if sweep.pairs != "none":
            held_out += indexes.pairs(base.first, targets)
        problems += why_not(base, index, held_out)
        tasks.append((base, targets))
    return tasks, problems


def _trials(sweep: Sweep, base: Base, held_out: Sequence[tuple[str, ...]]) -> Iterator[Trial]:
    backbone = base.first.network.name
    for unseen, seed in product(held_out, sweep.seeds):
        drawn = choices(sweep, base, seed)
        searched = tuple(dict.fromkeys(path for choice in drawn for path in choice))
        for draw, choice in enumerate(drawn):
            settings = hold_out(merge(base.settings, nested(choice)), base.first, unseen, seed)
            experiment, problems = try_experiment(settings)
            if experiment is None:
                raise SettingsError(
                    f"draw {draw} of {base.name} with seed {seed} is not valid:\n  "
                    + "\n  ".join((*problems, f"drawn: {choice}"))
                )
            place = Place(base.dataset, base.method, backbone, unseen, seed)
            yield Trial(place, draw, searched, experiment)
