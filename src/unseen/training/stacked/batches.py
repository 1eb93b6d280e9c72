"""Batches of many runs at once. Runs with the same seed and training domains see the same images:
these are read once, as one stream."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.data.randomness import image_keys, step_key
from unseen.data.sampling import Sampler
from unseen.data.stored_features import StoredFeatures

_BLOCK = 64
"""Steps whose image positions are drawn in one go."""


class Stream(NamedTuple):
    """What some neighbouring runs see."""

    seed: int
    sampler: Sampler
    n_runs: int


class Bundle(NamedTuple):
    """Neighbouring streams that have as many runs each, so that they fill a rectangle."""

    streams: slice
    runs: slice
    runs_each: int


def bundles(streams: Sequence[Stream]) -> list[Bundle]:
    """Of streams in the order of their number of runs; runs are numbered stream by stream."""
    found, first_stream, first_run = [], 0, 0
    for each, group in groupby(streams, key=lambda stream: stream.n_runs):
        number = len(list(group))
        found.append(
            Bundle(
                slice(first_stream, first_stream + number),
                slice(first_run, first_run + number * each),
                each,
            )
        )
        first_stream, first_run = first_stream + number, first_run + number * each
    return found


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
        images = features.batch(rows.ravel()).unflatten(0, rows.shape)
        tensors = (images, torch.from_numpy(labels[rows]), keys, torch.from_numpy(rows), step_keys)
        images, own_labels, keys, positions, step_keys = (t.to(device) for t in tensors)
        yield DomainBatch(
            images, own_labels, domains, keys, sampler.n_domains, positions, step_keys
        )


def _rows(streams: Sequence[Stream], steps: int) -> Iterator[np.ndarray]:
    """`[streams, batch]` for each step."""
    for start in range(0, steps, _BLOCK):
        block = range(start, min(start + _BLOCK, steps))
        yield from np.stack([stream.sampler.block(block) for stream in streams], axis=1)


def part_of(batch: DomainBatch, streams: slice) -> tuple[Tensor, ...]:
    """What differs between streams, of some of them."""
    parts = (batch.images, batch.labels, batch.keys, batch.positions, batch.step_key)
    return tuple(part[streams] for part in parts)
