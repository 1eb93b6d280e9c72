"""Augmented views of training images: which images, with which random numbers, known by which key.

A view is a function of the seed of the views, its number and the image, so runs that augment alike
share it, whatever their seed and unseen domain. Where augmentation mixes images, the images to mix
with are training images of the run's own training domains, and only runs that train on the same
ones share it.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.config import AugmentSettings, Experiment
from unseen.data.augmentation.amplitude_mix import partner_rows
from unseen.data.dataset import Split
from unseen.data.feed import Feed
from unseen.data.randomness import image_keys
from unseen.data.roles import Roles
from unseen.marks import deciding

_SEEDS = 1 << 40
"""Added to `network.view_seed`: no run's own random numbers are those of a view."""


class AugmentedViews(NamedTuple):
    """The views that one augmentation makes of some images."""

    key: str
    """Changes with the augmentation, the seed of the views, and the images that they come from."""
    rows: np.ndarray
    feed: Feed
    settings: AugmentSettings
    seed: int
    sources: tuple[np.ndarray, ...]
    """Training images by training domain, to mix with; empty where nothing is mixed."""

    @staticmethod
    def of(feed: Feed, roles: Roles, experiment: Experiment) -> "AugmentedViews":
        settings, seed = experiment.augment, experiment.network.view_seed
        sources: tuple[np.ndarray, ...] = ()
        if settings.amplitude_mix > 0:
            sources = tuple(roles.train.values())
            rows = np.sort(np.concatenate([*sources, roles.target_rows]))
        else:  # of every domain: one that is unseen here trains in another run
            rows = np.flatnonzero(feed.images.index.splits == Split.TRAIN)
        total = hashlib.sha256(repr((deciding(settings), seed)).encode())
        for part in (rows, *sources):
            total.update(len(part).to_bytes(8, "big") + part.tobytes())
        return AugmentedViews(total.hexdigest()[:16], rows, feed, settings, _SEEDS + seed, sources)

    def images(self, view: int, rows: np.ndarray) -> Iterator[Tensor]:
        """Pixels of a view, as a network takes them."""
        keys = image_keys(self.seed, view, torch.as_tensor(rows))
        partners = None
        if self.sources:
            partners = partner_rows(keys, self._domains(rows), self.sources)
        return self.feed.augmented(rows, keys, self.settings, partners)

    def _domains(self, rows: np.ndarray) -> np.ndarray:
        """The training domain of each image by its position in `sources`; -1: none of them."""
        found = np.full(len(rows), -1)
        for number, own in enumerate(self.sources):
            found[np.isin(rows, own)] = number
        return found
