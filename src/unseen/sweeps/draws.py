"""What a sweep consists of: its parts, and the runs of each with their draws: random values of
settings that have a range, or the points of a grid. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations, product
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic.fields import FieldInfo

from unseen.data.index import Index
from unseen.errors import SettingsError, nearest
from unseen.results.folder import RunFolder
from unseen.results.result import UPPER_BOUND, RunResult, labelled_bound
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, Settings, complete_settings
from unseen.settings.ranges import Range, Uniform, declared, fraction
from unseen.settings.recipes import (
    build_experiment,
    flattened,
    merge,
    nested,
    read_recipe,
    try_experiment,
)
from unseen.sweeps.sweep_file import DatasetPart, MethodPart, Sweep

_SET_BY_A_SWEEP = {
    "data.name": "datasets",
    "method.name": "methods",
    "network.name": "backbones",
    "data.unseen_domain": "unseen",
    "seed": "seeds",
}
"""Settings that the plan chooses, and the key of a sweep that says how."""
_SET_BY_A_COMPARISON = {"data.name": "DATASET", "method.name": "--methods", "seed": "--seeds"}
"""Settings that a comparison chooses, and the word of its command that says how."""


@dataclass(frozen=True)
class Part:
    """A method on a dataset and a backbone: all its runs, before domain, seed and draw are chosen.

    Its last two fields are known once the images have been found.
    """

    dataset: str
    method: str
    """As tables call it: the name of a method, of a recipe, or of a sweep's variant."""
    settings: Mapping[str, Any]
    experiment: Experiment
    """The settings as they are, complete."""
    split_by_seed: bool = False
    singles: tuple[tuple[str, ...], ...] = ()
    """Domains, or groups of them, that are held out in turn."""
    pairs: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}"

    @property
    def kind(self) -> tuple[str, str, str]:
        """Dataset, row and backbone: what has a speed of its own. The row of an upper bound says
        that it is one, whatever its name."""
        bound = self.experiment.data.train_on_unseen
        row = labelled_bound(self.method) if bound else self.method
        return self.dataset, row, self.experiment.network.name

    def hold_out(self, unseen: Sequence[str], seed: int) -> dict[str, Any]:
        """Return the settings of its runs with these domains held out. Of the training domains that
        the recipe names, the others remain."""
        data: dict[str, Any] = {"unseen_domain": list(unseen)}
        training = [d for d in self.experiment.data.training_domains if d not in unseen]
        if training:
            data["training_domains"] = training
        if self.split_by_seed:
            data |= {"split_seed": seed, "official_splits": False}
        return merge(self.settings, {"seed": seed, "data": data})

    def with_images(self, sweep: Sweep, index: Index) -> "Part":
        """Add what is held out of these images. Each domain is held out in turn, unless the recipe
        names both sides (MNIST to MNIST-M) or several targets of adaptation; pairs are each of them
        with each other domain that would train."""
        domains, labelled = index.domains, index.labelled_domains
        data, adapts = self.experiment.data, self.experiment.setting == "adaptation"
        if sweep.unseen:
            found = (named_together(name, domains) for name in sweep.unseen)
            singles = tuple(each for each in found if each)
        elif data.unseen_domain and (data.training_domains or (adapts and data.unseen_domain[1:])):
            singles = tuple((name,) for name in data.unseen_domain)
        else:
            singles = tuple((name,) for name in data.training_domains or labelled)
        pairs: tuple[tuple[str, ...], ...] = ()
        if sweep.pairs == "all" and _of_dataset(sweep, self.dataset).pairs != "none":
            targets = {first for first, *_ in singles}
            trains = data.training_domains or labelled
            pairs = tuple(
                (one, other)
                for one, other in combinations(labelled, 2)
                if (one in targets and other in trains) or (other in targets and one in trains)
            )
        return replace(self, singles=singles, pairs=pairs)


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


def named_together(word: str, domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains that `photo` or `photo+sketch` names, in the order of the dataset; none
    where a name is none of them. Names may have a + of their own."""
    if word in domains:
        return (word,)
    for first in domains:
        if word.startswith(f"{first}+"):
            rest = named_together(word.removeprefix(f"{first}+"), domains)
            if rest and first not in rest:
                return tuple(sorted((first, *rest), key=domains.index))
    return ()


def refuse(name: str, problems: Sequence[str]) -> None:
    """Raise where there are problems, naming all of them. A comparison has no name."""
    if problems:
        complaint = f"{name} is not a valid sweep" if name else "this comparison cannot be trained"
        raise SettingsError(f"{complaint}:\n  " + "\n  ".join(dict.fromkeys(problems)))


def find_parts(sweep: Sweep, name: str = "") -> list[Part]:
    """Combine every dataset, method and backbone of a sweep, or of a comparison, which has no name.
    All mistakes that can be seen without images and without torch are named at once."""
    problems = list(_chosen_elsewhere(sweep, comparison=not name))
    parts: list[Part] = []
    mistakes: dict[str, list[str]] = {}
    methods = [m for name in sweep.methods for m in (catalog.METHODS if name == "all" else [name])]
    unused = [(dataset, "aggregate", None) for dataset in sweep.by_dataset]
    wanted = list(product(sweep.datasets, methods, sweep.backbones or (None,)))
    for dataset, method, backbone in dict.fromkeys([*wanted, *unused]):
        try:
            settings = _settings_of(sweep, dataset, method, backbone)
        except SettingsError as error:
            problems.append(str(error))
            continue
        if (dataset, method, backbone) in wanted:
            experiment, found = try_experiment(settings)
            for mistake in found:
                mistakes.setdefault(mistake, []).append(f"{dataset}/{method}")
            if experiment is not None:
                parts.append(Part(dataset, method, settings, experiment, sweep.split_by_seed))
    problems += [f"settings: {each} ({', '.join(names)})" for each, names in mistakes.items()]
    if parts:
        problems += _wrong_names(sweep, parts)
        problems += (each for part in parts for each in _wrong_values(sweep, part))
    if not problems and (sweep.draws or 1) > 1 and not any(search_ranges(sweep, p) for p in parts):
        problems.append("draws: no setting has a range, so all draws would be the same run")
    refuse(name, problems)
    return parts


def _chosen_elsewhere(sweep: Sweep, comparison: bool) -> Iterator[str]:
    """Name settings that must not be given, because a key of the sweep says what they are. Networks
    may differ from dataset to dataset, unless there are backbones."""
    chosen = dict(_SET_BY_A_COMPARISON if comparison else _SET_BY_A_SWEEP)
    if sweep.split_by_seed:
        chosen |= dict.fromkeys(("data.split_seed", "data.official_splits"), "split_by_seed")
    for part in (sweep, *sweep.by_method.values(), *sweep.by_dataset.values()):
        free = {"network.name"} if isinstance(part, DatasetPart) and not sweep.backbones else set()
        for path in flattened(part.settings):
            if path in chosen.keys() - free:
                yield f"settings.{path}: is chosen by '{chosen[path]}'"


def _of_dataset(sweep: Sweep, dataset: str) -> DatasetPart:
    return sweep.by_dataset.get(dataset, DatasetPart())


def _of_method(sweep: Sweep, method: str) -> MethodPart:
    return sweep.by_method.get(method, MethodPart())


def _settings_of(sweep: Sweep, dataset: str, method: str, backbone: str | None) -> dict[str, Any]:
    """Lay the settings of all runs, of the dataset and of the method over a recipe."""
    own = _of_method(sweep, method)
    settings: dict[str, Any] = {"recipe": own.variant_of if method == UPPER_BOUND else method}
    recipe = read_recipe(f"{dataset}/{own.variant_of or method}")
    of_backbone = {} if backbone is None else {"network": {"name": backbone}}
    of_dataset = _of_dataset(sweep, dataset).settings
    for layer in (recipe, sweep.settings, of_dataset, own.settings, of_backbone):
        settings = merge(settings, layer)
    return settings


def setting_fields(settings: Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every single setting, by its dotted path."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from setting_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def _paths(part: Part) -> set[str]:
    return {path for path, _ in setting_fields(part.experiment)}


def search_ranges(sweep: Sweep, part: Part) -> dict[str, Range]:
    """Return the ranges of a method's settings: those that stand on them, then those of the sweep,
    of the dataset and of the method, each before the ones before it."""
    fields = dict(setting_fields(part.experiment))
    found = {path: declared(field.metadata) for path, field in fields.items()}
    of_dataset = _of_dataset(sweep, part.dataset).ranges
    named = sweep.ranges | of_dataset | _of_method(sweep, part.method).ranges
    for path, known in named.items():
        if path in fields:
            kinds = get_args(fields[path].annotation) or (fields[path].annotation,)
            whole = isinstance(known, Uniform) and int in kinds and float not in kinds
            found[path] = replace(known, whole=True) if whole else known
    searched = sweep.search or found
    return {path: known for path, known in found.items() if known and path in searched}


def _grid(sweep: Sweep, part: Part) -> Mapping[str, Sequence[Any]]:
    return sweep.grid | _of_method(sweep, part.method).grid


def draws_of(sweep: Sweep, part: Part, seed: int) -> list[dict[str, Any]]:
    """Return what each draw changes, by dotted path; its number is its place in the list. A draw is
    the same on every machine and for every held-out domain, and another one for each seed."""
    if grid := _grid(sweep, part):
        own = {path: values for path, values in grid.items() if path in _paths(part)}
        return [dict(zip(own, point, strict=True)) for point in product(*own.values())]
    ranges = search_ranges(sweep, part)

    def draw(number: int) -> dict[str, Any]:
        words = (sweep.search_seed, part.method, number, seed)
        return {path: ranges[path].draw(fraction(*words, path)) for path in ranges}

    return [draw(number) if number else {} for number in range(sweep.draws or 1)]


def _wrong_names(sweep: Sweep, parts: Sequence[Part]) -> Iterator[str]:
    """Name what is searched and cannot be. A file may speak of a method that a shorter list of
    methods leaves out."""
    own = {path for part in parts for path in _paths(part)}
    configs = [catalog.settings_class("method", name) for name in catalog.METHODS]
    known = own | {f"method.{name}" for config in configs for name in config.model_fields}
    ranged = {path for part in parts for path in search_ranges(sweep, part)}
    named: list[tuple[str, Mapping[str, Any], set[str]]] = [
        ("ranges", sweep.ranges, known),
        ("grid", sweep.grid, known),
        ("search", dict.fromkeys(sweep.search), known),
        *((f"by_dataset.{n}.ranges", each.ranges, known) for n, each in sweep.by_dataset.items()),
    ]
    for part in parts:
        of_method = _of_method(sweep, part.method)
        for key, given in (("ranges", of_method.ranges), ("grid", of_method.grid)):
            named.append((f"by_method.{part.method}.{key}", given, _paths(part)))
    for key, path, valid in ((key, path, valid) for key, given, valid in named for path in given):
        if path in _SET_BY_A_SWEEP:
            yield f"{key}.{path}: is chosen by '{_SET_BY_A_SWEEP[path]}'"
        elif path in ("metric", "setting") or path.startswith("devices."):
            yield f"{key}.{path}: is the same for all runs; give it under settings"
        elif path not in valid:
            yield f"{key}.{path}: unknown setting{nearest(path, valid)}"
        elif key == "ranges" and sweep.search and path not in sweep.search:
            yield f"ranges.{path}: is not searched; add it to search, or leave search out"
        elif key == "search" and path not in ranged and path in own:
            yield f"search: {path} has no range; give it one under ranges"


def _wrong_values(sweep: Sweep, part: Part) -> Iterator[str]:
    """Name values that a setting of the method does not accept."""
    grid = _grid(sweep, part)
    ranges = {} if grid else search_ranges(sweep, part)
    values = [("ranges", path, value) for path in ranges for value in ranges[path].extremes()]
    values += [("grid", path, value) for path, many in grid.items() for value in many]
    for key, path, value in values:
        if path in _paths(part) and path not in _SET_BY_A_SWEEP:
            _, problems = try_experiment(merge(part.settings, nested({path: value})))
            yield from (f"{key}: {problem} ({part.name})" for problem in problems)
