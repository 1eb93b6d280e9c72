"""The parts of many runs that train as one, put together from their settings."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric

from unseen.config import Experiment
from unseen.data.augment import PixelScale
from unseen.data.batch import Task
from unseen.data.feed import Feed, Process
from unseen.data.opening import open_dataset
from unseen.data.prepare import PreparedImages, prepare
from unseen.data.roles import choose_roles
from unseen.data.sampling import Sampler
from unseen.data.stored_features import StoredFeatures
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.records.folder import RunFolder
from unseen.selection import Evaluation
from unseen.training.build import Images, build_sampler, count_steps, put_to_use
from unseen.training.display import Display
from unseen.training.features import features_key, stored_features
from unseen.training.stacked.batches import Stream
from unseen.training.stacked.methods import StackedMethod, Tensors, copy_of
from unseen.training.stacked.optimizers import Rates, rates_of
from unseen.training.state import remember_images


@dataclass
class StackedRun:
    """One of the runs: who it is, and what was recorded of it up to now."""

    experiment: Experiment
    folder: RunFolder
    images: Images
    task: Task
    sampler: Sampler
    rates: Rates
    evaluations: list[Evaluation] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    error: UnseenError | None = None
    """Why it goes no further, while the others do."""


@dataclass
class Stack:
    display: Display
    runs: list[StackedRun]
    """In the order of their streams, which is that of all tensors."""
    streams: list[Stream]
    steps: int
    features: StoredFeatures
    feed: Feed
    method: StackedMethod
    kept: dict[str, Tensors] = field(default_factory=dict)
    """The learning tensors that each selection rule prefers up to now."""
    started: float = field(default_factory=time.monotonic)

    @property
    def shared(self) -> Experiment:
        """For settings in which the runs do not differ."""
        return self.runs[0].experiment

    @property
    def going_on(self) -> list[tuple[int, StackedRun]]:
        return [(number, run) for number, run in enumerate(self.runs) if run.error is None]


def assemble_stack(
    fabric: Fabric, members: Sequence[tuple[Experiment, RunFolder]], display: Display
) -> Stack:
    """Everything in place before the first step; methods begin as `build_method` has them."""
    first = members[0][0]
    dataset = open_dataset(first.data)
    networks = _networks([experiment for experiment, _ in members], len(dataset.index().classes))
    network = networks[first.seed].network
    prepared = prepare(dataset, network.image_size, display.preparing)
    _check_shared(prepared, networks.values(), first)
    features = stored_features(fabric, prepared, network, first.network, display.preparing)
    first_methods: dict[tuple[int, str], Method] = {}
    runs, methods = [], {}
    for experiment, folder in members:
        images = Images(prepared, choose_roles(prepared.index, experiment.data))
        remember_images(fabric, folder, images)
        task = Task(prepared.index.classes, images.roles.training_domains)
        alike = (experiment.seed, experiment.method.model_dump_json())
        if alike not in first_methods:
            first_methods[alike] = networks[experiment.seed].method(experiment, task)
        method = methods[folder.path] = first_methods[alike]
        sampler = build_sampler(experiment, images.roles)
        rates = rates_of(method, experiment.optimizer)
        runs.append(StackedRun(experiment, folder, images, task, sampler, rates))
    runs, streams = _in_streams(runs)
    settings = [run.experiment.method for run in runs]
    stacked = StackedMethod([methods[r.folder.path] for r in runs], settings, fabric.device)
    feed = Feed(features, PixelScale(network.mean, network.std), Process(fabric.device))
    steps = count_steps(first, runs[0].sampler)
    return Stack(display, runs, streams, steps, features, feed, stacked)


class _Beginning(NamedTuple):
    """A network as a seed makes it, and the random numbers that follow it."""

    network: Network
    random: torch.Tensor

    def method(self, experiment: Experiment, task: Task) -> Method:
        torch.set_rng_state(self.random)
        return put_to_use(copy_of(self.network), experiment, task)


def _networks(experiments: Sequence[Experiment], n_classes: int) -> dict[int, _Beginning]:
    """By seed."""
    found = {}
    for seed in dict.fromkeys(experiment.seed for experiment in experiments):
        torch.manual_seed(seed)
        network = build_network(experiments[0].network, n_classes)
        found[seed] = _Beginning(network, torch.get_rng_state())
    return found


def _check_shared(
    prepared: PreparedImages, beginnings: Iterable[_Beginning], experiment: Experiment
) -> None:
    keys = {features_key(prepared, each.network, experiment.network) for each in beginnings}
    if len(keys) > 1:
        raise UnseenError(
            f"the frozen part of '{experiment.network.name}' depends on the seed, so these runs "
            "share no features; train them one by one"
        )


def _in_streams(runs: Sequence[StackedRun]) -> tuple[list[StackedRun], list[Stream]]:
    """Runs in the order of the streams that they belong to, streams in that of their size."""
    found: dict[tuple[Any, ...], list[StackedRun]] = {}
    for run in runs:
        found.setdefault((run.experiment.seed, run.task.domains), []).append(run)
    members = sorted(found.values(), key=len)
    streams = [Stream(m[0].experiment.seed, m[0].sampler, len(m)) for m in members]
    return list(chain.from_iterable(members)), streams
