"""Which images a step sees, as a pure function of the step: resuming replays nothing."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from torch import Tensor

from unseen.data.styles import partner_rows

_STEPS = 64
"""Steps whose places are shuffled by one generator."""


Places = Callable[[np.ndarray], np.ndarray]
"""From numbers of an endless sequence, which are in ascending order, to places among images."""


def _shuffled(size: int, seed: int, pool: int) -> Places:
    """Go through images in passes in which each comes once, freshly shuffled."""

    @lru_cache(maxsize=2)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng((seed, pool, epoch)).permutation(size)

    def at(numbers: np.ndarray) -> np.ndarray:
        epochs, offsets = np.divmod(numbers, max(size, 1))
        chosen = np.empty(len(numbers), dtype=np.int64)
        for epoch in range(epochs[0], epochs[-1] + 1) if len(numbers) else ():
            here = slice(*np.searchsorted(epochs, (epoch, epoch + 1)))
            chosen[here] = order(epoch)[offsets[here]]
        return chosen

    return at


def _classes_in_turn(labels: np.ndarray, share: int, seed: int, first_pool: int) -> Places:
    """Go through classes in turn, with the next image of each one's own shuffled passes; `share` is
    how many images a step has. The places of a step are shuffled, or every second process would
    always get the same classes.

    Of n images in a row, each of k classes has n/k, rounded up or down; what one step lacks, the
    next one has.
    """
    images = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    passes = [_shuffled(len(own), seed, first_pool + number) for number, own in enumerate(images)]

    @lru_cache(maxsize=2)
    def orders(block: int) -> np.ndarray:
        in_order = np.tile(np.arange(share), (_STEPS, 1))
        return np.random.default_rng((seed, first_pool, block, 1)).permuted(in_order, axis=1)

    def at(numbers: np.ndarray) -> np.ndarray:
        steps, places = np.divmod(numbers, share)
        turns = steps * share
        for block in map(int, np.unique(steps // _STEPS)):
            here = steps // _STEPS == block
            turns[here] += orders(block)[steps[here] % _STEPS, places[here]]
        rounds, class_of = np.divmod(turns, len(images))
        in_turn = np.argsort(turns)
        chosen = np.empty(len(numbers), dtype=np.int64)
        for number in map(int, np.unique(class_of)):
            here = in_turn[class_of[in_turn] == number]
            chosen[here] = images[number][passes[number](rounds[here])]
        return chosen

    return at


class Sampler:
    """Endless passes over the training images, each image once a pass, freshly shuffled.

    `balanced` gives every domain the same number of places in a batch (a small domain then starts
    its next pass earlier); `class_balanced` gives them, within each domain, to each of its classes
    in turn (a small class then starts its next pass earlier); `pooled` shuffles all images
    together, as the DMG paper does.
    """

    def __init__(
        self,
        positions: Sequence[np.ndarray],
        images_per_domain: int,
        mode: Literal["balanced", "class_balanced", "pooled"],
        seed: int,
        target: tuple[np.ndarray, int] | None = None,
        labels: Sequence[np.ndarray] = (),
    ) -> None:
        """`target`: unlabelled images of the target domain, and how many of them a batch has.
        `labels`: those of `positions`, for `class_balanced`."""
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
        self._places: list[Places] = []
        streams = 0
        for number, (rows, _) in enumerate(self._pools):
            if mode == "class_balanced":
                self._places.append(_classes_in_turn(labels[number], self._share, seed, streams))
                streams += len(np.unique(labels[number]))
            else:
                self._places.append(_shuffled(len(rows), seed, streams))
                streams += 1
        self._target, self.target_size = target or (np.zeros(0, dtype=np.int64), 0)
        self._target_places = _shuffled(len(self._target), seed, streams)

    def positions(
        self, step: int, rank: int = 0, world_size: int = 1
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return image positions, domains and places in the whole batch, for one process.

        Every process gets images of every domain; together they get the batch of one process.
        """
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        here = np.arange(rank, self._share, world_size)
        for pool, (positions, domain_of) in enumerate(self._pools):
            chosen = self._places[pool](step * self._share + here)
            parts.append((positions[chosen], domain_of[chosen], pool * self._share + here))
        rows, domains, places = map(np.concatenate, zip(*parts, strict=True))
        return rows, domains, places

    def block(self, steps: range) -> np.ndarray:
        """Return `[steps, batch]`, the positions of neighbouring steps, for a single process."""
        parts: list[np.ndarray] = []
        for (positions, _), places in zip(self._pools, self._places, strict=True):
            numbers = np.arange(steps.start * self._share, steps.stop * self._share)
            chosen = positions[places(numbers)]
            parts.append(chosen.reshape(len(steps), self._share))
        return np.concatenate(parts, axis=1)

    def target_positions(
        self, step: int, rank: int = 0, world_size: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return target images of a step and their places, which follow those of the others."""
        places = np.arange(rank, self.target_size, world_size)
        chosen = self._target_places(step * self.target_size + places)
        return self._target[chosen], self.batch_size + places

    def partners(self, keys: Tensor, domains: np.ndarray) -> np.ndarray:
        """Return a training image of another training domain for each key. `domains` are those of
        the labelled images, which come first; any domain serves those that follow."""
        labelled = np.full(len(keys), -1)
        labelled[: len(domains)] = domains
        return partner_rows(keys, labelled, self._by_domain)
