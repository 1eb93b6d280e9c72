"""Which images a step sees, as a pure function of the step: resuming replays nothing."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from torch import Tensor

from unseen.data.augmentation.amplitude_mix import partner_rows


class Sampler:
    """Endless passes over the training images, each image once a pass, freshly shuffled.

    `balanced` gives every domain the same number of places in a batch (a small domain then starts
    its next pass earlier); `pooled` shuffles all images together, as the DMG paper does.
    """

    def __init__(
        self,
        positions: Sequence[np.ndarray],
        images_per_domain: int,
        mode: Literal["balanced", "pooled"],
        seed: int,
        target: tuple[np.ndarray, int] | None = None,
    ) -> None:
        """`target`: unlabelled images of the target domain, and how many of them a batch has."""
        self.n_domains = len(positions)
        self._by_domain = positions
        self.batch_size = images_per_domain * self.n_domains
        self.steps_per_epoch = max(1, -(-sum(map(len, positions)) // self.batch_size))
        domains = [np.full(len(rows), d) for d, rows in enumerate(positions)]
        if mode == "pooled":
            self._pools = [(np.concatenate(positions), np.concatenate(domains))]
        else:
            self._pools = list(zip(positions, domains, strict=True))
        self._share = self.batch_size // len(self._pools)
        self._target, self.target_size = target or (np.zeros(0, dtype=np.int64), 0)
        self._seed = seed
        self._order = lru_cache(maxsize=2 * len(self._pools))(self._permutation)

    def positions(
        self, step: int, rank: int = 0, world_size: int = 1
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Image positions, their domains and their places in the whole batch, for one process.

        Every process gets images of every domain; together they get the batch of one process.
        """
        rows: list[np.ndarray] = []
        domains: list[np.ndarray] = []
        places: list[np.ndarray] = []
        for pool, (positions, domain_of) in enumerate(self._pools):
            places_here = np.arange(rank, self._share, world_size)
            chosen = self._draw(pool, len(positions), step * self._share + places_here)
            rows.append(positions[chosen])
            domains.append(domain_of[chosen])
            places.append(pool * self._share + places_here)
        return np.concatenate(rows), np.concatenate(domains), np.concatenate(places)

    def block(self, steps: range) -> np.ndarray:
        """`[steps, batch]`: image positions of neighbouring steps at once, for a single process."""
        parts: list[np.ndarray] = []
        for pool, (positions, _) in enumerate(self._pools):
            numbers = np.arange(steps.start * self._share, steps.stop * self._share)
            chosen = positions[self._draw(pool, len(positions), numbers)]
            parts.append(chosen.reshape(len(steps), self._share))
        return np.concatenate(parts, axis=1)

    def target_positions(
        self, step: int, rank: int = 0, world_size: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Target images of a step and their places, which follow those of the labelled images."""
        places = np.arange(rank, self.target_size, world_size)
        pool = len(self._pools)
        chosen = self._draw(pool, len(self._target), step * self.target_size + places)
        return self._target[chosen], self.batch_size + places

    def partners(self, keys: Tensor, domains: np.ndarray) -> np.ndarray:
        """A training image of another training domain for each key. `domains` are those of the
        labelled images, which come first; any domain serves those that follow, of the target."""
        labelled = np.full(len(keys), -1)
        labelled[: len(domains)] = domains
        return partner_rows(keys, labelled, self._by_domain)

    def _permutation(self, pool: int, epoch: int, size: int) -> np.ndarray:
        return np.random.default_rng((self._seed, pool, epoch)).permutation(size)

    def _draw(self, pool: int, size: int, numbers: np.ndarray) -> np.ndarray:
        """Which of `size` images come at these places of a pool's endless, shuffled sequence;
        places are in ascending order."""
        epochs, offsets = np.divmod(numbers, max(size, 1))
        chosen = np.empty(len(numbers), dtype=np.int64)
        for epoch in range(epochs[0], epochs[-1] + 1) if len(numbers) else ():
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))
            chosen[here] = self._order(pool, epoch, size)[offsets[here]]
        return chosen
