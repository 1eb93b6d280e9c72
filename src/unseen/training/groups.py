"""Which runs on the same stored features may be trained together in one process, and their batches.

Runs with the same seed and training domains see the same images, which are read once: a stream.
"""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from unseen.data.batch import DomainBatch
from unseen.data.dataset import OpenDatasets
from unseen.data.features import StoredFeatures
from unseen.data.index import Index
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import choose_roles
from unseen.data.sampling import Sampler
from unseen.errors import UnseenError
from unseen.methods.base import DatasetPassMethod, Method
from unseen.networks.layers import BATCH_NORMS
from unseen.networks.stages import DROPOUTS
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, complete_settings
from unseen.training.build import (
    Run,
    build_method,
    build_sampler,
    build_task,
    count_steps,
    own_tensors,
    trains_from_features,
)

LARGEST = 256
"""Runs in a stack."""
MEMORY = 2 * 2**30
"""Bytes that a stack may take, by a rough estimate."""
_COPIES = 8
"""Of a run's tensors and of its batch: gradients, moments, preferred weights, activations."""
_NUMBERS = ("method", "optimizer", "schedule", "augment")
"""Sections in which runs of a stack may differ by numbers with a fraction."""
_NUMBERS_BESIDE_VIEWS = ("method", "optimizer", "schedule")
"""The same, where stored views depend on the augmentation."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Side by side they become one grouped convolution, many times slower than one after the other."""
_OWN_STEPS = ("edit_gradients", "after_update")
"""What a method may do between steps, which a stack does not."""


def stackable_groups(
    experiments: Sequence[Experiment], datasets: OpenDatasets | None = None
) -> list[tuple[Experiment, ...]]:
    """Returns the runs that may be trained together, in order; every other one alone.

    Together train runs from stored features (`network.freeze_until`, generalization, balanced
    batches, one device, full precision, no `swad`) of a method that is `stackable`, does not need
    pixels and does nothing between steps. They differ in seed, unseen and training domains (of the
    same number) and in numbers with a fraction, such as rates and weights of losses; in nothing
    else.
    What learns must be the same function in training and prediction: a network with dropout, or
    with batch norm that adapts, behind the boundary trains alone, because its dropout is drawn from
    a generator that each run has to itself. So do methods that keep something from step to step in
    buffers, runs with random weights and other seeds (their frozen parts are not the same), and
    runs with MixStyle, which looks at one batch at a time.
    """
    groups = group_runs(experiments, datasets or OpenDatasets())
    return [tuple(experiments[number] for number in numbers) for numbers in groups]


def group_runs(experiments: Sequence[Experiment], datasets: OpenDatasets) -> list[list[int]]:
    """Returns the groups by the numbers of their runs."""
    found: dict[str, list[int]] = {}
    for number, experiment in enumerate(experiments):
        try:
            key = _key(experiment, datasets)
        except UnseenError:  # training it reports what is wrong
            key = None
        found.setdefault(key or f"alone {number}", []).append(number)
    groups = []
    for numbers in found.values():
        size = 1
        if len(numbers) > 1:
            first = experiments[numbers[0]]
            size = _largest(first, datasets.open(first.data).index())
        groups += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return sorted(groups)


def _key(experiment: Experiment, datasets: OpenDatasets) -> str | None:
    """Returns what is equal for runs of one stack; None for a run that cannot be part of any."""
    kind: type[Method] = catalog.load("method", experiment.method.name)
    fits = (
        trains_from_features(experiment),
        experiment.setting == "generalization",
        experiment.sampling != "pooled",
        experiment.devices.number == 1,
        experiment.precision == "32",
        experiment.averaging.name != "swad",
        not experiment.compile,
        experiment.augment.mixstyle == 0,
        experiment.selection != "oracle" or experiment.data.unseen_domain,
        kind.traits.stackable,
        all(getattr(kind, name) is getattr(Method, name) for name in _OWN_STEPS),
        not issubclass(kind, DatasetPassMethod),
    )
    if not all(fits):
        return None
    index = datasets.open(experiment.data).index()
    roles = choose_roles(index, experiment.data)
    settings = complete_settings(experiment)
    mixing = experiment.network.views > 0 and experiment.augment.amplitude_mix > 0
    for section in _NUMBERS if not experiment.network.views else _NUMBERS_BESIDE_VIEWS:
        settings[section] = {name: _kind(value) for name, value in settings[section].items()}
    del settings["epochs"]
    settings |= {
        "data": _without_domains(experiment),
        "clip_gradient": _kind(experiment.clip_gradient),
        "seed": experiment.seed if experiment.network.pretrained is False else None,
        "steps": count_steps(experiment, build_sampler(experiment, roles)),
        "classes": build_task(index, experiment).classes,
        "training domains": roles.training_domains if mixing else len(roles.training_domains),
    }
    return json.dumps(settings, sort_keys=True)


def _kind(value: Any) -> Any:
    """Hides a number: runs of a stack may differ in numbers with a fraction, and in nothing
    else."""
    return "a number" if isinstance(value, float) else value


def _without_domains(experiment: Experiment) -> dict[str, Any]:
    data = complete_settings(experiment)["data"]
    return {k: v for k, v in data.items() if k not in ("unseen_domain", "training_domains")}


def _largest(experiment: Experiment, index: Index) -> int:
    """Returns how many such runs a stack may hold: one, if the part that learns is not made for
    it."""
    task = build_task(index, experiment)
    method = build_method(experiment, task).train()
    if not _fits(method):
        return 1
    network = method.network
    assert network.frozen_until is not None
    numbers = sum(tensor.numel() for _, tensor in own_tensors(method))
    batch = experiment.images_per_domain * len(task.domains)
    numbers += batch * math.prod(network.input_shapes[network.frozen_until])
    return max(1, min(LARGEST, MEMORY // (4 * _COPIES * numbers)))


def _fits(method: Method) -> bool:
    """Returns whether what learns is one function in training and prediction, of tensors that each
    have one name: no dropout, no batch norm that adapts, no shared weights, no buffers that
    prediction needs; and that nothing of it is slower together than one by one: no convolutions."""
    aside = {"network", *method.traits.training_only}
    if any(name.partition(".")[0] not in aside for name, _ in method.named_buffers()):
        return False
    own = [id(tensor) for _, tensor in own_tensors(method)]
    if len(set(own)) < len(own):
        return False
    network = method.network
    frozen = {m for name in network.frozen_stages() for m in network.stage(name).modules()}
    for module in method.modules():
        if module in frozen:
            continue
        rates = [getattr(module, name, 0.0) for name in ("drop_prob", "drop_rate")]
        if isinstance(module, DROPOUTS):
            rates.append(module.p)
        if any(isinstance(rate, float) and rate > 0 for rate in rates):
            return False
        if isinstance(module, BATCH_NORMS) and module.training:
            return False
        if isinstance(module, _CONVOLUTIONS):
            return False
    return True


_STEPS_AT_ONCE = 64
"""Steps whose image positions are drawn in one go."""


class Stream(NamedTuple):
    """The images that some neighbouring runs see."""

    seed: int
    sampler: Sampler
    n_runs: int


def in_streams(runs: Sequence[Run]) -> list[Run]:
    """Returns runs in the order of the streams that they belong to, streams in that of their
    size."""
    members: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        members.setdefault(_images_of(run), []).append(run)
    return list(chain.from_iterable(sorted(members.values(), key=len)))


def streams_of(runs: Sequence[Run]) -> list[Stream]:
    """Returns the streams of runs that are in order."""
    streams = []
    for (seed, _), members in groupby(runs, _images_of):
        first, *others = members
        streams.append(Stream(seed, first.sampler, 1 + len(others)))
    return streams


def _images_of(run: Run) -> tuple[int, tuple[str, ...]]:
    return run.experiment.seed, run.task.domains


class Bundle(NamedTuple):
    """Neighbouring streams that have as many runs each, so that they fill a rectangle."""

    streams: slice
    runs: slice
    runs_each: int


def bundles(runs_of_streams: Sequence[int]) -> list[Bundle]:
    """Returns the bundles of streams in the order of their number of runs; runs are numbered stream
    by stream."""
    found: list[Bundle] = []
    first_stream, first_run = 0, 0
    for each, group in groupby(runs_of_streams):
        end_stream = first_stream + len(list(group))
        end_run = first_run + (end_stream - first_stream) * each
        found.append(Bundle(slice(first_stream, end_stream), slice(first_run, end_run), each))
        first_stream, first_run = end_stream, end_run
    return found


def stacked_batches(
    features: StoredFeatures, streams: Sequence[Stream], steps: range, device: torch.device
) -> Iterator[DomainBatch]:
    """Yields a step's batches of all streams in one: a first axis of streams, but for `domains`,
    which are the same in all balanced batches."""
    sampler = streams[0].sampler
    domains = torch.from_numpy(sampler.positions(0)[1]).to(device)
    seeds = sorted({stream.seed for stream in streams})
    of_stream = torch.tensor([seeds.index(stream.seed) for stream in streams])
    places = torch.arange(sampler.batch_size)
    labels = features.index.labels
    for step, rows in zip(steps, _rows(streams, steps), strict=True):
        keys = torch.stack([image_keys(seed, step, places) for seed in seeds])[of_stream]
        step_keys = torch.stack([step_key(seed, step) for seed in seeds])[of_stream]
        images = features.training_batch(rows.ravel(), keys.ravel()).unflatten(0, rows.shape)
        tensors = (images, torch.from_numpy(labels[rows]), keys, torch.from_numpy(rows), step_keys)
        images, own_labels, keys, positions, step_keys = (t.to(device) for t in tensors)
        yield DomainBatch(
            images, own_labels, domains, keys, sampler.n_domains, positions, step_keys
        )


def _rows(streams: Sequence[Stream], steps: range) -> Iterator[np.ndarray]:
    """Yields rows `[streams, batch]` for each step."""
    for start in range(0, len(steps), _STEPS_AT_ONCE):
        block = steps[start : start + _STEPS_AT_ONCE]
        yield from np.stack([stream.sampler.block(block) for stream in streams], axis=1)
