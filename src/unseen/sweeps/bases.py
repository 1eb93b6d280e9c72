"""The draws of a sweep: values of settings that have a range, or the points of a grid."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, get_args

from pydantic.fields import FieldInfo

from unseen.errors import SettingsError, nearest
from unseen.results.result import UPPER_BOUND, labelled_bound
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, Settings
from unseen.settings.ranges import Range, declared, fraction
from unseen.settings.recipes import merge, nested, read_recipe, try_experiment
from unseen.sweeps.draws import DatasetPart, MethodPart, Ranges, Sweep

SET_BY_THE_SWEEP = {
    "data.name": "datasets",
    "method.name": "methods",
    "network.name": "backbones",
    "data.unseen_domain": "unseen",
    "seed": "seeds",
}
"""Settings that the plan chooses, and the key of a sweep that says how."""
_SET_BY_THE_COMPARISON = {"data.name": "DATASET", "method.name": "--methods", "seed": "--seeds"}
"""Settings that a comparison chooses, and the word of its command that says how."""
_SPLITS = ("data.split_seed", "data.official_splits")


class Base(NamedTuple):
    """A method on a dataset and a backbone, before domains, seed and draw are chosen."""

    dataset: str
    method: str
    """As tables call it: the name of a method, of a recipe, or of a sweep's variant."""
    settings: Mapping[str, Any]
    experiment: Experiment
    """The settings as they are, complete."""
    split_by_seed: bool = False

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}"

    def hold_out(
        self, unseen: Sequence[str], seed: int, changes: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The settings of one run. Of the training domains that the recipe names, those that are
        not held out remain."""
        data: dict[str, Any] = {"unseen_domain": list(unseen)}
        training = [d for d in self.experiment.data.training_domains if d not in unseen]
        if training:
            data["training_domains"] = training
        if self.split_by_seed:
            data |= {"split_seed": seed, "official_splits": False}
        return merge(merge(self.settings, changes or {}), {"seed": seed, "data": data})

    @property
    def row(self) -> str:
        """What tables call the method; an upper bound says so, whatever its name."""
        bound = self.experiment.data.train_on_unseen
        return labelled_bound(self.method) if bound else self.method

    def targets(self, domains: Sequence[str], wanted: Sequence[str]) -> list[tuple[str, ...]]:
        """What is held out in each run: each domain in turn; but a recipe that names both sides
        (MNIST to MNIST-M) has one, and several targets of adaptation are named on purpose."""
        data, adapts = self.experiment.data, self.experiment.setting == "adaptation"
        if wanted:
            return [found for name in wanted if (found := named_together(name, domains))]
        if data.unseen_domain and (data.training_domains or (adapts and data.unseen_domain[1:])):
            return [(name,) for name in data.unseen_domain]
        return [(name,) for name in data.training_domains or domains]

    def pairs(self, domains: Sequence[str], targets: Sequence[str]) -> list[tuple[str, ...]]:
        """Each target with each other domain that would train, in the order of the dataset."""
        named = self.experiment.data.training_domains or domains
        others = [domain for domain in domains if domain in named]
        found = {frozenset((t, o)) for t in targets if t in domains for o in others if o != t}
        ordered = [tuple(sorted(pair, key=domains.index)) for pair in found]
        return sorted(ordered, key=lambda pair: [domains.index(domain) for domain in pair])


def named_together(word: str, domains: Sequence[str]) -> tuple[str, ...]:
    """The domains that `photo` or `photo+sketch` names, in the order of the dataset; empty where it
    is none of them. Names may have a + of their own."""
    if word in domains:
        return (word,)
    for first in domains:
        if word.startswith(f"{first}+"):
            rest = named_together(word.removeprefix(f"{first}+"), domains)
            if rest and first not in rest:
                return tuple(sorted((first, *rest), key=domains.index))
    return ()


def named_ranges(sweep: Sweep, base: Base) -> Ranges:
    """Search ranges that the file has for a method on a dataset; the method's own win."""
    of_dataset = sweep.by_dataset.get(base.dataset, DatasetPart()).ranges
    return sweep.ranges | of_dataset | sweep.by_method.get(base.method, MethodPart()).ranges


def check_sweep(sweep: Sweep, name: str = "") -> list[Base]:
    """The bases of a sweep, or of a comparison, which has no name. All mistakes that can be told
    without images and without torch are told at once."""
    bases, problems = find_bases(sweep, SET_BY_THE_SWEEP if name else _SET_BY_THE_COMPARISON)
    if bases:
        problems += range_mistakes(sweep, bases)
    if not problems and (sweep.draws or 1) > 1 and not any(search_ranges(sweep, b) for b in bases):
        problems.append("draws: no setting has a range, so all draws would be the same run")
    if problems:
        complaint = f"{name} is not a valid sweep" if name else "this comparison cannot be trained"
        raise SettingsError(f"{complaint}:\n  " + "\n  ".join(dict.fromkeys(problems)))
    return bases


def find_bases(sweep: Sweep, chosen: Mapping[str, str]) -> tuple[list[Base], list[str]]:
    """Every combination of dataset, method and backbone; and what is wrong with them.

    `chosen` are settings that must not be given, and what chooses them.
    """
    wrong: dict[str, str] = {}
    for dataset in (*sweep.datasets, *sweep.by_dataset):
        try:
            read_recipe(f"{dataset}/aggregate")
        except SettingsError as error:
            wrong[dataset] = str(error)
    problems = [
        f"{key}: {wrong[name]}"
        for key, names in (("datasets", sweep.datasets), ("by_dataset", sweep.by_dataset))
        for name in names
        if name in wrong
    ]
    problems += _chosen_by_the_sweep(sweep, chosen)
    bases = []
    mistakes: dict[str, list[str]] = {}
    methods = [
        each for name in sweep.methods for each in (catalog.METHODS if name == "all" else [name])
    ]
    datasets = [name for name in sweep.datasets if name not in wrong]
    for dataset, method, backbone in product(datasets, methods, sweep.backbones or (None,)):
        own = sweep.by_method.get(method, MethodPart())
        try:
            recipe = read_recipe(f"{dataset}/{own.variant_of or method}")
        except SettingsError as error:
            problems.append(f"methods: {error}")
            continue
        name = own.variant_of if method == UPPER_BOUND else method
        of_dataset = sweep.by_dataset.get(dataset, DatasetPart()).settings
        settings: dict[str, Any] = {"recipe": name}
        for layer in (recipe, sweep.settings, of_dataset, own.settings):
            settings = merge(settings, layer)
        if backbone is not None:
            settings = merge(settings, {"network": {"name": backbone}})
        experiment, found = try_experiment(settings)
        for mistake in found:
            mistakes.setdefault(mistake, []).append(f"{dataset}/{method}")
        if experiment is not None:
            bases.append(Base(dataset, method, settings, experiment, sweep.split_by_seed))
    problems += [f"settings: {each} ({', '.join(names)})" for each, names in mistakes.items()]
    return bases, problems


def _chosen_by_the_sweep(sweep: Sweep, chosen: Mapping[str, str]) -> Iterator[str]:
    """Settings that must not be given, because a key of the sweep says what they are."""
    if sweep.split_by_seed:
        chosen = {**chosen, **dict.fromkeys(_SPLITS, "split_by_seed")}
    for section in (sweep.settings, *(part.settings for part in sweep.by_method.values())):
        yield from _chosen_elsewhere(section, chosen)
    free = {} if sweep.backbones else {"network.name"}  # may differ from dataset to dataset
    for part in sweep.by_dataset.values():
        own = {path: key for path, key in chosen.items() if path not in free}
        yield from _chosen_elsewhere(part.settings, own)


def _chosen_elsewhere(settings: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterator[str]:
    for path, key in chosen.items():
        section, _, name = path.rpartition(".")
        inside = settings.get(section) if section else settings
        if isinstance(inside, Mapping) and name in inside:
            yield f"settings.{path}: is chosen by '{key}'"


def setting_fields(settings: Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every single setting, by its dotted path."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from setting_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def search_ranges(sweep: Sweep, base: Base) -> dict[str, Range]:
    """Ranges of a method's settings: those that stand on them, then the file's, which win."""
    fields = dict(setting_fields(base.experiment))
    found = {path: declared(field.metadata) for path, field in fields.items()}
    for path, described in named_ranges(sweep, base).items():
        if path in fields:
            found[path] = described.range(whole=_takes_whole_numbers(fields[path]))
    return {
        path: known
        for path, known in found.items()
        if known is not None and (not sweep.search or path in sweep.search)
    }


def choices(sweep: Sweep, base: Base, seed: int) -> list[dict[str, Any]]:
    """What each draw changes, by dotted path; the draw's number is its place in the list."""
    grid = sweep.grid | sweep.by_method.get(base.method, MethodPart()).grid
    if grid:
        own = {path: values for path, values in grid.items() if path in _paths(base)}
        return [dict(zip(own, point, strict=True)) for point in product(*own.values())]
    ranges = search_ranges(sweep, base)
    return [
        {path: _draw(sweep, base, number, seed, path, ranges[path]) for path in ranges if number}
        for number in range(sweep.draws or 1)
    ]


def _draw(sweep: Sweep, base: Base, number: int, seed: int, path: str, known: Range) -> Any:
    """The same on every machine, and for every held-out domain; another one for each seed."""
    return known.draw(fraction(sweep.search_seed, base.method, number, seed, path))


def range_mistakes(sweep: Sweep, bases: list[Base]) -> Iterator[str]:
    """Names that no method has, and values beyond the bounds of a setting."""
    own = {path for base in bases for path in _paths(base)}
    known = own | _paths_of_all_methods()
    ranged = {path for base in bases for path in search_ranges(sweep, base)}
    named = [("ranges", sweep.ranges, known), ("grid", sweep.grid, known)]
    named.append(("search", dict.fromkeys(sweep.search), known))
    for dataset, about in sweep.by_dataset.items():
        named.append((f"by_dataset.{dataset}.ranges", about.ranges, known))
    for base in bases:
        part = sweep.by_method.get(base.method, MethodPart())
        for key, given in (("ranges", part.ranges), ("grid", part.grid)):
            named.append((f"by_method.{base.method}.{key}", given, _paths(base)))
    for key, path, valid in ((key, path, valid) for key, given, valid in named for path in given):
        if path in SET_BY_THE_SWEEP:
            yield f"{key}.{path}: is chosen by '{SET_BY_THE_SWEEP[path]}'"
        elif path.startswith("devices."):
            yield f"{key}.{path}: has no influence on the result"
        elif path not in valid:
            yield f"{key}.{path}: unknown setting{nearest(path, valid)}"
        elif key == "ranges" and sweep.search and path not in sweep.search:
            yield f"ranges.{path}: is not searched; add it to search, or leave search out"
        elif key == "search" and path not in ranged and path in own:
            yield f"search: {path} has no range; give it one under ranges"
    for base in bases:
        yield from _value_mistakes(sweep, base)


def _value_mistakes(sweep: Sweep, base: Base) -> Iterator[str]:
    """Values that a setting of the method does not accept."""
    grid = sweep.grid | sweep.by_method.get(base.method, MethodPart()).grid
    ranges = {} if grid else search_ranges(sweep, base)
    values = [("ranges", path, value) for path in ranges for value in ranges[path].extremes()]
    values += [("grid", path, value) for path, many in grid.items() for value in many]
    for key, path, value in values:
        if path in _paths(base) and path not in SET_BY_THE_SWEEP:
            _, problems = try_experiment(merge(base.settings, nested({path: value})))
            yield from (f"{key}: {problem} ({base.name})" for problem in problems)


def _paths(base: Base) -> set[str]:
    return {path for path, _ in setting_fields(base.experiment)}


def _paths_of_all_methods() -> set[str]:
    """A file may speak of a method that a shorter list of methods leaves out."""
    configs = [catalog.settings_class("method", name) for name in catalog.METHODS]
    return {f"method.{name}" for config in configs for name in config.model_fields}


def _takes_whole_numbers(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation) or (field.annotation,)
    return int in kinds and float not in kinds
