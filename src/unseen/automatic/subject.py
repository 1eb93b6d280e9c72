"""What `auto` works on: images, the places that are left out in turn, and the base of all runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unseen.automatic.candidates import Candidate, ladder, small_ladder
from unseen.data.dataset import Dataset, OpenDatasets, open_dataset
from unseen.data.datasets.folder import JSON_SUFFIXES
from unseen.data.decoding import ProgressCallback
from unseen.data.index import Index
from unseen.data.prepare import PreparedImages, prepare
from unseen.data.roles import MOST_SKEWED
from unseen.errors import DataError, unknown_name
from unseen.networks.backbones import build_network
from unseen.networks.layers import BATCH_NORMS
from unseen.networks.quick_cpu import BFLOAT16
from unseen.networks.stages import Network
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, as_list
from unseen.settings.recipes import build_experiment, merge, nested, read_recipe

MOST_PLACES = 6
"""More domains are dealt out to this many places, each of which is left out as a whole."""


@dataclass(frozen=True)
class Subject:
    """The images, and what all runs have in common."""

    name: str
    dataset: str
    settings: dict[str, Any]
    """Of all runs, over the recipe of the dataset, but for the network's name."""
    experiment: Experiment
    """A plain run on all places."""
    index: Index
    places: dict[str, tuple[str, ...]]
    """What is left out in turn: a domain, or several that are left out together."""
    unseen: tuple[str, ...]
    """Domains that are kept out of everything until the end."""
    overrides: dict[str, Any]
    """What the user has set, which wins over what candidates change."""

    @property
    def domains(self) -> tuple[str, ...]:
        """All domains that train."""
        return tuple(domain for place in self.places.values() for domain in place)

    @cached_property
    def images(self) -> int:
        return sum(len(self.index.rows(domain)) for domain in self.domains)

    @property
    def request(self) -> dict[str, Any]:
        """What tells one request from another, as plain data."""
        return {
            "dataset": self.dataset,
            "settings": self.experiment.model_dump(mode="json"),
            "places": {name: list(domains) for name, domains in self.places.items()},
            "unseen": list(self.unseen),
        }

    @cached_property
    def _network(self) -> Network:
        settings = self.experiment.network.model_copy(update={"pretrained": False})
        return build_network(settings, len(self.index.classes))

    def prepared(self, report: ProgressCallback | None = None) -> tuple[Dataset, PreparedImages]:
        """Returns the images as the network takes them, made now if need be."""
        dataset = open_dataset(self.experiment.data)
        return dataset, prepare(dataset, self._network.image_size, report)

    def candidates(self) -> list[Candidate]:
        """Returns what is compared, the simplest first."""
        if self.experiment.network.pretrained is False:
            return small_ladder()
        network = self._network
        has_norm = any(isinstance(module, BATCH_NORMS) for module in network.modules())
        precision = "bf16" if BFLOAT16 else "32"
        return ladder(network.names, network.mask_sites[0], has_norm, precision)


def open_subject(
    data: str | Path, unseen: str | Sequence[str], overrides: Mapping[str, Any]
) -> Subject:
    """Returns the subject for a folder, a manifest or the name of a dataset; raises where its
    domains cannot show how a model does at a new place."""
    own = nested(dict(overrides))
    dataset, settings = _find(data, own)
    base = read_recipe(f"{dataset}/aggregate")
    chosen = build_experiment(merge(base, settings)).data
    index, kept_out = OpenDatasets().open(chosen).index(), tuple(as_list(unseen))
    for name in kept_out:
        if name not in index.domains:
            raise DataError(f"--unseen: {unknown_name('domain', name, index.domains)}")
    wanted = chosen.training_domains or index.labelled_domains
    domains = [d for d in index.labelled_domains if d in wanted and d not in kept_out]
    if len(domains) < 2:
        beside = f" beside {', '.join(kept_out)}, which --unseen keeps out" if kept_out else ""
        what = f"only one domain with labels ({domains[0]})" if domains else "no domain with labels"
        raise DataError(
            f"there is {what}{beside}. What a model is worth at a new place shows only where it "
            "was not trained, so auto needs labelled images of two domains, better three or more: "
            "places, devices, seasons. Sort the images into DOMAIN/CLASS/ by where they come from; "
            "with a single place, train with 'unseen train' and expect less elsewhere than it "
            "measures"
        )
    labels = np.concatenate([index.labels[index.rows(domain)] for domain in domains])
    _, counts = np.unique(labels, return_counts=True)
    if counts.max() > MOST_SKEWED * counts.min():
        settings = merge({"metric": "balanced", "sampling": "class_balanced"}, settings)
    settings = merge(settings, {"data": {"training_domains": domains}})
    experiment = build_experiment(merge(base, settings), dataset)
    name = Path(data).resolve().stem if settings["data"].get("root") == str(data) else dataset
    own.pop("data", None)
    places, base = _places(index, domains), _without_name(settings)
    return Subject(name, dataset, base, experiment, index, places, kept_out, _without_name(own))


def _without_name(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings as a sweep takes them, which calls the network a backbone."""
    if "network" not in settings:
        return settings
    return settings | {"network": {k: v for k, v in settings["network"].items() if k != "name"}}


def _find(data: str | Path, overrides: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name of the dataset, and the settings with where it lies."""
    path, datasets = Path(data), catalog.entries("dataset")
    if str(data) in datasets and not path.is_file():
        return str(data), overrides
    if not path.exists():
        known = unknown_name("dataset", str(data), datasets)
        raise DataError(f"{data} is no folder, no manifest and no dataset: {known}")
    listed = path.suffix.lower() in {".csv", *JSON_SUFFIXES}
    if path.is_file() and not listed:
        raise DataError(f"{data} is no manifest; expected a .csv or .jsonl file, or a folder")
    return "manifest" if listed else "folder", merge({"data": {"root": str(data)}}, overrides)


def _places(index: Index, domains: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the domains, each by itself; or dealt out by their size, to and fro, where they are
    many."""
    if len(domains) <= MOST_PLACES:
        return {domain: (domain,) for domain in domains}
    by_size = sorted(domains, key=lambda domain: -len(index.rows(domain)))
    turns = [*range(MOST_PLACES), *reversed(range(MOST_PLACES))]
    groups: list[list[str]] = [[] for _ in range(MOST_PLACES)]
    for number, domain in enumerate(by_size):
        groups[turns[number % len(turns)]].append(domain)
    in_order = [tuple(sorted(group, key=index.domains.index)) for group in groups]
    return {"+".join(group): group for group in in_order}
