"""The batches of many runs that train together.

Runs with the same seed and training domains see the same images, which are read once: a stream.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from unseen.data.batch import DomainBatch
from unseen.data.features import StoredFeatures
from unseen.data.randomness import image_keys, step_key
from unseen.data.sampling import Sampler
from unseen.training.run import Run

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
