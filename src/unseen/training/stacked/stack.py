"""The parts of many runs that train as one, put together from their settings, and their batches.

Runs with the same seed and training domains see the same images, which are read once: a stream.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric

from unseen.data.augment import PixelScale
from unseen.data.batch import DomainBatch, Task
from unseen.data.dataset import OpenDatasets
from unseen.data.features import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.prepare import PreparedImages, prepare
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import choose_roles
from unseen.data.sampling import Sampler
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.results.folder import RunFolder
from unseen.results.rules import Evaluation
from unseen.settings.experiment import Experiment
from unseen.training.average import StepAverage
from unseen.training.build import Images, build_method_on, build_sampler, build_task, count_steps
from unseen.training.build_average import average_of_steps
from unseen.training.checkpoints import save_tensors
from unseen.training.display import Display
from unseen.training.features import features_key, stored_features
from unseen.training.head import Start, first_head
from unseen.training.stacked.method import StackedMethod, Tensors, copy_of
from unseen.training.stacked.optimizer import Rates, rates_of
from unseen.training.state import remember_images

_STEPS_AT_ONCE = 64
"""Steps whose image positions are drawn in one go."""


class Stream(NamedTuple):
    """The images that some neighbouring runs see."""

    seed: int
    sampler: Sampler
    n_runs: int


@dataclass
class StackedRun:
    """One of the runs, and what was recorded of it up to now."""

    experiment: Experiment
    folder: RunFolder
    images: Images
    task: Task
    sampler: Sampler
    rates: Rates
    evaluations: list[Evaluation] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    error: UnseenError | None = None
    """Why it stopped, while the others go on."""


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
    average: StepAverage | None
    """Of the learning tensors of all runs at once."""
    best: dict[str, Tensors] = field(default_factory=dict)
    """The learning tensors that each selection rule prefers up to now."""
    started: float = field(default_factory=time.monotonic)
    processor_started: float = field(default_factory=time.process_time)

    @property
    def shared(self) -> Experiment:
        """For settings in which the runs do not differ."""
        return self.runs[0].experiment

    @property
    def active(self) -> list[tuple[int, StackedRun]]:
        """The runs that have not diverged, with their numbers."""
        return [(number, run) for number, run in enumerate(self.runs) if run.error is None]


def assemble_stack(
    fabric: Fabric,
    members: Sequence[tuple[Experiment, RunFolder]],
    display: Display,
    datasets: OpenDatasets | None = None,
) -> Stack:
    """Everything in place before the first step; methods begin as `build_method` has them."""
    first = members[0][0]
    dataset = (datasets or OpenDatasets()).open(first.data)
    classes = build_task(dataset.index(), first).classes
    networks = _networks([experiment for experiment, _ in members], len(classes))
    network = networks[first.seed].network
    prepared = prepare(dataset, network.image_size, display.preparing)
    prepared.index = prepared.index.with_classes(classes)
    _check_shared(prepared, networks.values(), first)
    some = Images(prepared, choose_roles(prepared.index, first.data), dataset)
    features = stored_features(fabric.device, some, network, first, display)
    feed = Feed(features, PixelScale(network.mean, network.std), Process(fabric.device))
    beginning = _Beginning(fabric, networks, feed, display)
    runs, methods = [], {}
    for experiment, folder in members:
        images = Images(prepared, choose_roles(prepared.index, experiment.data), dataset)
        remember_images(fabric, folder, images)
        task = build_task(dataset.index(), experiment)
        method = methods[folder.path] = beginning.method(experiment, folder, images, task)
        sampler = build_sampler(experiment, images.roles)
        rates = rates_of(method, experiment.optimizer)
        runs.append(StackedRun(experiment, folder, images, task, sampler, rates))
    runs, streams = _in_streams(runs)
    settings = [run.experiment.method for run in runs]
    stacked = StackedMethod([methods[r.folder.path] for r in runs], settings, fabric.device)
    steps = count_steps(first, runs[0].sampler)
    average = None
    if first.averaging.name != "none":
        average = average_of_steps(first, stacked.learning, steps)
    return Stack(display, runs, streams, steps, features, feed, stacked, average)


class _SeededNetwork(NamedTuple):
    """A network with the weights that a seed gives it, and the random state after drawing them."""

    network: Network
    random_state: torch.Tensor

    def method(self, experiment: Experiment, task: Task, head: Tensors | None) -> Method:
        torch.set_rng_state(self.random_state)
        return build_method_on(copy_of(self.network), experiment, task, head)


class _Beginning:
    """Methods before their first step; runs that begin alike have the same one."""

    def __init__(
        self, fabric: Fabric, networks: dict[int, _SeededNetwork], feed: Feed, display: Display
    ) -> None:
        self._fabric, self._networks, self._feed, self._display = fabric, networks, feed, display
        self._methods: dict[tuple[Any, ...], Method] = {}
        self._heads: dict[tuple[Any, ...], Tensors] = {}

    def method(
        self, experiment: Experiment, folder: RunFolder, images: Images, task: Task
    ) -> Method:
        head = self._head(experiment, folder, images) if experiment.head_first else None
        own = None if head is None else head["weight"].numpy().tobytes()
        alike = (experiment.seed, experiment.method.model_dump_json(), own)
        if alike not in self._methods:
            network = self._networks[experiment.seed]
            self._methods[alike] = network.method(experiment, task, head)
        return self._methods[alike]

    def _head(self, experiment: Experiment, folder: RunFolder, images: Images) -> Tensors:
        """Fitted once for all runs with the same network and training images."""
        key = (experiment.seed, images.roles.training_domains)
        if key in self._heads and not folder.head.is_file():
            save_tensors(folder.head, self._heads[key])
        network = self._networks[experiment.seed].network
        start = Start(experiment, network, images, self._feed)
        self._heads[key] = first_head(self._fabric, folder, start, self._display)
        return self._heads[key]


def _networks(experiments: Sequence[Experiment], n_classes: int) -> dict[int, _SeededNetwork]:
    """By seed."""
    found = {}
    for seed in dict.fromkeys(experiment.seed for experiment in experiments):
        torch.manual_seed(seed)
        network = build_network(experiments[0].network, n_classes)
        found[seed] = _SeededNetwork(network, torch.get_rng_state())
    return found


def _check_shared(
    prepared: PreparedImages, networks: Iterable[_SeededNetwork], experiment: Experiment
) -> None:
    keys = {features_key(prepared, each.network, experiment.network) for each in networks}
    if len(keys) > 1:
        raise UnseenError(
            f"the frozen part of '{experiment.network.name}' depends on the seed, so these runs "
            "cannot share features; train them one by one"
        )


def _in_streams(runs: Sequence[StackedRun]) -> tuple[list[StackedRun], list[Stream]]:
    """Runs in the order of the streams that they belong to, streams in that of their size."""
    found: dict[tuple[Any, ...], list[StackedRun]] = {}
    for run in runs:
        found.setdefault((run.experiment.seed, run.task.domains), []).append(run)
    members = sorted(found.values(), key=len)
    streams = [Stream(m[0].experiment.seed, m[0].sampler, len(m)) for m in members]
    return list(chain.from_iterable(members)), streams


def stacked_batches(
    features: StoredFeatures, streams: Sequence[Stream], steps: int, device: torch.device
) -> Iterator[DomainBatch]:
    """A step's batches of all streams in one: a first axis of streams, but for `domains`, which
    are the same in all balanced batches."""
    sampler = streams[0].sampler
    domains = torch.from_numpy(sampler.positions(0)[1]).to(device)
    seeds = sorted({stream.seed for stream in streams})
    of_stream = torch.tensor([seeds.index(stream.seed) for stream in streams])
    places = torch.arange(sampler.batch_size)
    labels = features.index.labels
    for step, rows in enumerate(_rows(streams, steps)):
        keys = torch.stack([image_keys(seed, step, places) for seed in seeds])[of_stream]
        step_keys = torch.stack([step_key(seed, step) for seed in seeds])[of_stream]
        images = features.training_batch(rows.ravel(), keys.ravel()).unflatten(0, rows.shape)
        tensors = (images, torch.from_numpy(labels[rows]), keys, torch.from_numpy(rows), step_keys)
        images, own_labels, keys, positions, step_keys = (t.to(device) for t in tensors)
        yield DomainBatch(
            images, own_labels, domains, keys, sampler.n_domains, positions, step_keys
        )


def _rows(streams: Sequence[Stream], steps: int) -> Iterator[np.ndarray]:
    """`[streams, batch]` for each step."""
    for start in range(0, steps, _STEPS_AT_ONCE):
        block = range(start, min(start + _STEPS_AT_ONCE, steps))
        yield from np.stack([stream.sampler.block(block) for stream in streams], axis=1)
