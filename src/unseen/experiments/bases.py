"""What a plan starts from: the settings of each method on each dataset and backbone."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from unseen import catalog
from unseen.config import Experiment
from unseen.errors import SettingsError, unknown_name
from unseen.experiments.sweep_file import DatasetPart, MethodPart, Ranges, Sweep
from unseen.recipe_files import merge, read_recipe, recipe_names, try_experiment
from unseen.records.result import labelled_bound

SET_BY_THE_SWEEP = {
    "data.name": "datasets",
    "method.name": "methods",
    "network.name": "backbones",
    "data.unseen_domain": "unseen",
    "seed": "seeds",
}
"""Settings that the plan chooses, and the key of a sweep that says how."""
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


def find_bases(sweep: Sweep, chosen: Mapping[str, str]) -> tuple[list[Base], list[str]]:
    """Every combination of dataset, method and backbone; and what is wrong with them.

    `chosen` are settings that must not be given, and what chooses them.
    """
    families = sorted({name.partition("/")[0] for name in recipe_names()})
    problems = [
        f"{key}: {unknown_name('dataset with recipes', name, families)}"
        for key, names in (("datasets", sweep.datasets), ("by_dataset", sweep.by_dataset))
        for name in names
        if name not in families
    ]
    problems += _chosen_by_the_sweep(sweep, chosen)
    bases = []
    mistakes: dict[str, list[str]] = {}
    methods = [
        each for name in sweep.methods for each in (catalog.METHODS if name == "all" else [name])
    ]
    datasets = [name for name in sweep.datasets if name in families]
    for dataset, method, backbone in product(datasets, methods, sweep.backbones or (None,)):
        own = sweep.by_method.get(method, MethodPart())
        try:
            recipe = _recipe(dataset, catalog.method_name(own.variant_of or method))
            settings = merge(recipe, sweep.settings)
            settings = merge(settings, sweep.by_dataset.get(dataset, DatasetPart()).settings)
        except SettingsError as error:
            problems.append(f"methods: {error}")
            continue
        settings = merge(settings, own.settings)
        if backbone is not None:
            settings = merge(settings, {"network": {"name": backbone}})
        experiment, found = try_experiment(settings)
        for mistake in found:
            mistakes.setdefault(mistake, []).append(f"{dataset}/{method}")
        if experiment is not None:
            bases.append(Base(dataset, method, settings, experiment, sweep.split_by_seed))
    problems += [f"settings: {each} ({', '.join(names)})" for each, names in mistakes.items()]
    return bases, problems


def _recipe(dataset: str, method: str) -> dict[str, Any]:
    """The recipe `dataset/method`, or `dataset/aggregate` with the method's own defaults."""
    if f"{dataset}/{method}" in recipe_names():
        return read_recipe(f"{dataset}/{method}")
    if method not in catalog.METHODS and ":" not in method:
        raise SettingsError(catalog.unknown_method(method))
    return merge(read_recipe(f"{dataset}/aggregate"), {"method": {"name": method}})


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
