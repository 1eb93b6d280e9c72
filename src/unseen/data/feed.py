"""From prepared images to batches on the device, one batch ahead of the training step."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.config import AugmentSettings
from unseen.data.augment import PixelScale, augment, to_input
from unseen.data.batch import DomainBatch
from unseen.data.prepare import PreparedImages
from unseen.data.randomness import image_keys
from unseen.data.sampling import Sampler


class Place(NamedTuple):
    """Where a process computes, and which of how many it is."""

    device: torch.device
    rank: int = 0
    world: int = 1


def training_batches(
    prepared: PreparedImages,
    sampler: Sampler,
    settings: AugmentSettings,
    scale: PixelScale,
    place: Place,
    seed: int,
    steps: range,
) -> Iterator[DomainBatch]:
    """One augmented batch a step. Reading runs a step ahead, augmenting on the device."""

    def read(step: int) -> tuple[Tensor, ...]:
        rows, domains, places = sampler.positions(step, place.rank, place.world)
        keys = image_keys(seed, step, torch.from_numpy(places))
        labels = torch.from_numpy(prepared.index.labels[rows])
        return prepared.batch(rows), labels, torch.from_numpy(domains), keys

    for images, labels, domains, keys in _ahead(read, steps, place.device):
        images = augment(images, keys, settings, scale)
        yield DomainBatch(images, labels, domains, keys, sampler.n_domains)


def evaluation_batches(
    prepared: PreparedImages,
    rows: np.ndarray,
    scale: PixelScale,
    place: Place,
    batch_size: int = 128,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images as they are, with labels; each process gets every `world`-th image."""
    own = rows[place.rank :: place.world]

    def read(start: int) -> tuple[Tensor, ...]:
        chunk = own[start : start + batch_size]
        return prepared.batch(chunk), torch.from_numpy(prepared.index.labels[chunk])

    for images, labels in _ahead(read, range(0, len(own), batch_size), place.device):
        yield to_input(images, scale), labels


def _ahead(
    read: Callable[[int], tuple[Tensor, ...]], items: Iterable[int], device: torch.device
) -> Iterator[tuple[Tensor, ...]]:
    """Read the next batch in a thread while this one is used; copy without waiting to a GPU."""
    pin = device.type == "cuda"

    def fetch(item: int) -> tuple[Tensor, ...]:
        tensors = read(item)
        return tuple(t.pin_memory() for t in tensors) if pin else tensors

    with ThreadPoolExecutor(max_workers=1) as reader:
        pending = None
        for item in items:
            upcoming = reader.submit(fetch, item)
            if pending is not None:
                yield tuple(t.to(device, non_blocking=pin) for t in pending.result())
            pending = upcoming
        if pending is not None:
            yield tuple(t.to(device, non_blocking=pin) for t in pending.result())
