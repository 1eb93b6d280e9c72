"""The draws of a sweep: values of settings that have a range, or the points of a grid. No torch."""

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
from unseen.sweeps.sweep_file import DatasetPart, MethodPart, Ranges, Sweep

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

    @property
    def row(self) -> str:
        """What tables call the method; an upper bound says so, whatever its name."""
        bound = self.experiment.data.train_on_unseen
        return labelled_bound(self.method) if bound else self.method

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


def refuse(name: str, problems: Sequence[str]) -> None:
    """Raise where there are problems, naming all of them. A comparison has no name."""
    if problems:
        complaint = f"{name} is not a valid sweep" if name else "this comparison cannot be trained"
        raise SettingsError(f"{complaint}:\n  " + "\n  ".join(dict.fromkeys(problems)))


def check_sweep(sweep: Sweep, name: str = "") -> list[Base]:
    """The bases of a sweep, or of a comparison, which has no name. All mistakes that can be told
    without images and without torch are told at once."""
    unknown = _unknown_datasets(sweep)
    named = (("datasets", sweep.datasets), ("by_dataset", sweep.by_dataset))
    problems = [f"{key}: {unknown[n]}" for key, names in named for n in names if n in unknown]
    problems += _chosen_elsewhere(sweep, comparison=not name)
    bases, mistakes = _find_bases(sweep, [n for n in sweep.datasets if n not in unknown])
    problems += mistakes
    if bases:
        problems += _range_mistakes(sweep, bases)
    if not problems and (sweep.draws or 1) > 1 and not any(search_ranges(sweep, b) for b in bases):
        problems.append("draws: no setting has a range, so all draws would be the same run")
    refuse(name, problems)
    return bases


def _unknown_datasets(sweep: Sweep) -> dict[str, str]:
    """What is wrong with each dataset that has no recipes."""
    found: dict[str, str] = {}
    for dataset in (*sweep.datasets, *sweep.by_dataset):
        try:
            read_recipe(f"{dataset}/aggregate")
        except SettingsError as error:
            found[dataset] = str(error)
    return found


def _chosen_elsewhere(sweep: Sweep, comparison: bool) -> Iterator[str]:
    """Settings that must not be given, because a key of the sweep says what they are."""
    chosen = dict(_SET_BY_A_COMPARISON if comparison else _SET_BY_A_SWEEP)
    if sweep.split_by_seed:
        chosen |= dict.fromkeys(_SPLITS, "split_by_seed")
    sections = [sweep.settings, *(part.settings for part in sweep.by_method.values())]
    yield from (each for section in sections for each in _given(section, chosen))
    if not sweep.backbones:  # they may differ from dataset to dataset
        chosen.pop("network.name", None)
    for part in sweep.by_dataset.values():
        yield from _given(part.settings, chosen)


def _given(settings: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterator[str]:
    for path, key in chosen.items():
        section, _, name = path.rpartition(".")
        inside = settings.get(section) if section else settings
        if isinstance(inside, Mapping) and name in inside:
            yield f"settings.{path}: is chosen by '{key}'"


def _find_bases(sweep: Sweep, datasets: Sequence[str]) -> tuple[list[Base], list[str]]:
    """Every combination of dataset, method and backbone; and what is wrong with their settings."""
    bases: list[Base] = []
    problems: list[str] = []
    mistakes: dict[str, list[str]] = {}
    methods = [m for name in sweep.methods for m in (catalog.METHODS if name == "all" else [name])]
    for dataset, method, backbone in product(datasets, methods, sweep.backbones or (None,)):
        try:
            settings = _settings_of(sweep, dataset, method, backbone)
        except SettingsError as error:
            problems.append(f"methods: {error}")
            continue
        experiment, found = try_experiment(settings)
        for mistake in found:
            mistakes.setdefault(mistake, []).append(f"{dataset}/{method}")
        if experiment is not None:
            bases.append(Base(dataset, method, settings, experiment, sweep.split_by_seed))
    problems += [f"settings: {each} ({', '.join(names)})" for each, names in mistakes.items()]
    return bases, problems


def _settings_of(sweep: Sweep, dataset: str, method: str, backbone: str | None) -> dict[str, Any]:
    """A recipe, and over it the settings of all runs, of the dataset and of the method."""
    own = sweep.by_method.get(method, MethodPart())
    recipe = read_recipe(f"{dataset}/{own.variant_of or method}")
    settings: dict[str, Any] = {"recipe": own.variant_of if method == UPPER_BOUND else method}
    of_dataset = sweep.by_dataset.get(dataset, DatasetPart()).settings
    of_backbone = {} if backbone is None else {"network": {"name": backbone}}
    for layer in (recipe, sweep.settings, of_dataset, own.settings, of_backbone):
        settings = merge(settings, layer)
    return settings


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
    for path, described in _named_ranges(sweep, base).items():
        if path in fields:
            found[path] = described.range(whole=_takes_whole_numbers(fields[path]))
    return {
        path: known
        for path, known in found.items()
        if known is not None and (not sweep.search or path in sweep.search)
    }


def _named_ranges(sweep: Sweep, base: Base) -> Ranges:
    """Search ranges that the file has for a method on a dataset; the method's own win."""
    of_dataset = sweep.by_dataset.get(base.dataset, DatasetPart()).ranges
    return sweep.ranges | of_dataset | sweep.by_method.get(base.method, MethodPart()).ranges


def _takes_whole_numbers(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation) or (field.annotation,)
    return int in kinds and float not in kinds


def _grid(sweep: Sweep, base: Base) -> Mapping[str, Sequence[Any]]:
    return sweep.grid | sweep.by_method.get(base.method, MethodPart()).grid


def draws_of(sweep: Sweep, base: Base, seed: int) -> list[dict[str, Any]]:
    """What each draw changes, by dotted path; the draw's number is its place in the list. A draw is
    the same on every machine and for every held-out domain, and another one for each seed."""
    if grid := _grid(sweep, base):
        own = {path: values for path, values in grid.items() if path in _paths(base)}
        return [dict(zip(own, point, strict=True)) for point in product(*own.values())]
    ranges = search_ranges(sweep, base)

    def draw(number: int) -> dict[str, Any]:
        words = (sweep.search_seed, base.method, number, seed)
        return {path: ranges[path].draw(fraction(*words, path)) for path in ranges}

    return [draw(number) if number else {} for number in range(sweep.draws or 1)]


def _range_mistakes(sweep: Sweep, bases: Sequence[Base]) -> Iterator[str]:
    """Names that no method has, and values beyond the bounds of a setting."""
    own = {path for base in bases for path in _paths(base)}
    known = own | _paths_of_all_methods()
    ranged = {path for base in bases for path in search_ranges(sweep, base)}
    named: list[tuple[str, Mapping[str, Any], set[str]]] = [
        ("ranges", sweep.ranges, known),
        ("grid", sweep.grid, known),
        ("search", dict.fromkeys(sweep.search), known),
    ]
    for dataset, part in sweep.by_dataset.items():
        named.append((f"by_dataset.{dataset}.ranges", part.ranges, known))
    for base in bases:
        part = sweep.by_method.get(base.method, MethodPart())
        for key, given in (("ranges", part.ranges), ("grid", part.grid)):
            named.append((f"by_method.{base.method}.{key}", given, _paths(base)))
    for key, path, valid in ((key, path, valid) for key, given, valid in named for path in given):
        if path in _SET_BY_A_SWEEP:
            yield f"{key}.{path}: is chosen by '{_SET_BY_A_SWEEP[path]}'"
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
    grid = _grid(sweep, base)
    ranges = {} if grid else search_ranges(sweep, base)
    values = [("ranges", path, value) for path in ranges for value in ranges[path].extremes()]
    values += [("grid", path, value) for path, many in grid.items() for value in many]
    for key, path, value in values:
        if path in _paths(base) and path not in _SET_BY_A_SWEEP:
            _, problems = try_experiment(merge(base.settings, nested({path: value})))
            yield from (f"{key}: {problem} ({base.name})" for problem in problems)


def _paths(base: Base) -> set[str]:
    return {path for path, _ in setting_fields(base.experiment)}


def _paths_of_all_methods() -> set[str]:
    """A file may speak of a method that a shorter list of methods leaves out."""
    configs = [catalog.settings_class("method", name) for name in catalog.METHODS]
    return {f"method.{name}" for config in configs for name in config.model_fields}
