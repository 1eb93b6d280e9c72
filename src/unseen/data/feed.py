"""From prepared images (or stored features) to batches on the device, ahead of the step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.augment import PixelScale, augment, to_input
from unseen.data.batch import DomainBatch
from unseen.data.decoding import ahead
from unseen.data.features import StoredFeatures
from unseen.data.prepare import PreparedImages
from unseen.data.randomness import image_keys, step_key
from unseen.data.sampling import Sampler
from unseen.settings.experiment import AugmentSettings


class Process(NamedTuple):
    """The device of one training process, and which of how many processes it is."""

    device: torch.device
    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True)
class Feed:
    """What a network sees: pixels scaled as it expects them, or features as they were stored."""

    source: PreparedImages | StoredFeatures
    scale: PixelScale
    process: Process
    batch_size: int = 128
    """Of images that are not trained on."""
    readers: int = 1
    """Threads that read ahead, each of them a batch."""

    def training(
        self, sampler: Sampler, settings: AugmentSettings, seed: int, steps: range
    ) -> Iterator[DomainBatch]:
        """Yield one augmented batch a step. Reading runs ahead, augmenting on the device."""
        source, (_, rank, world_size) = self.source, self.process
        pixels = isinstance(source, PreparedImages)

        def read(step: int) -> tuple[Tensor, ...]:
            rows, domains, places = sampler.positions(step, rank, world_size)
            labels = torch.as_tensor(source.index.labels[rows])
            if sampler.target_size:
                target_rows, target_places = sampler.target_positions(step, rank, world_size)
                rows = np.concatenate([rows, target_rows])
                places = np.concatenate([places, target_places])
            keys = image_keys(seed, step, torch.as_tensor(places))
            about = (torch.as_tensor(domains), torch.as_tensor(rows), step_key(seed, step))
            if isinstance(source, StoredFeatures):
                return source.training_batch(rows, keys), keys, labels, *about
            partners = ()
            if settings.amplitude_mix > 0:
                partners = (source.batch(sampler.partners(keys, domains)),)
            return source.batch(rows), keys, labels, *about, *partners

        for images, keys, labels, domains, rows, key, *partners in self._prefetch(read, steps):
            if pixels:
                images = augment(images, keys, settings, self.scale, *partners)
            n = len(labels)
            target = images[n:] if sampler.target_size else None
            yield DomainBatch(
                images[:n], labels, domains, keys[:n], sampler.n_domains, rows[:n], key, target
            )

    def augmented(
        self,
        rows: np.ndarray,
        keys: Tensor,
        settings: AugmentSettings,
        partners: np.ndarray | None = None,
    ) -> Iterator[Tensor]:
        """Yield pixels of images in order, each augmented by its key; `partners` are the rows of
        images to mix them with, where the settings ask for it."""

        def read(start: int) -> tuple[Tensor, ...]:
            part = slice(start, start + self.batch_size)
            others = () if partners is None else (self.source.batch(partners[part]),)
            return self.source.batch(rows[part]), keys[part], *others

        starts = range(0, len(rows), self.batch_size)
        for images, keys_here, *others in self._prefetch(read, starts):
            yield augment(images, keys_here, settings, self.scale, *others)

    def evaluation(self, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images as they are, with labels; each process gets every `world_size`-th image,
        which may be none at all."""
        share = rows[self.process.rank :: self.process.world_size]
        labels = torch.as_tensor(self.source.index.labels[share]).to(self.process.device)
        size = self.batch_size
        for number, images in enumerate(self.images(share)):
            yield images, labels[number * size : (number + 1) * size]

    def images(self, rows: np.ndarray) -> Iterator[Tensor]:
        """Yield images as they are, in order, and nothing else about them."""

        def read(start: int) -> tuple[Tensor, ...]:
            return (self.source.batch(rows[start : start + self.batch_size]),)

        pixels = isinstance(self.source, PreparedImages)
        for (images,) in self._prefetch(read, range(0, len(rows), self.batch_size)):
            yield to_input(images, self.scale) if pixels else images

    def _prefetch(
        self, read: Callable[[int], tuple[Tensor, ...]], items: Iterable[int]
    ) -> Iterator[tuple[Tensor, ...]]:
        """Read the next batches in threads while one is used; copy without waiting to a GPU."""
        device = self.process.device
        pin = device.type == "cuda"

        def fetch(item: int) -> tuple[Tensor, ...]:
            tensors = read(item)
            return tuple(t.pin_memory() for t in tensors) if pin else tensors

        for tensors in ahead(fetch, items, self.readers, self.readers):
            yield tuple(t.to(device, non_blocking=pin) for t in tensors)
