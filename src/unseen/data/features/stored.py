"""Features from the frozen part of a network that stand in for images: plain ones, which measure
and train, and those of augmented views, which only train."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.augmentation import streams
from unseen.data.dataset import Index
from unseen.data.randomness import uniform


class StoredViews(NamedTuple):
    """Features of augmented views, each in an array of its own."""

    rows: np.ndarray
    """The images that the views are made of, in the order of the arrays."""
    values: tuple[np.ndarray, ...]


class StoredFeatures:
    """Stands in for prepared images: the same rows, as float32 features.

    Where they are maps, channels come last in memory, which networks on a CPU are quicker with.
    """

    def __init__(self, index: Index, values: np.ndarray, views: StoredViews | None = None) -> None:
        """`values` has a row for each image; maps have their channels last."""
        self.index = index
        self.values = values
        self.views = views
        self._places = np.zeros(0, dtype=np.int64)
        if views is not None:
            self._places = np.full(len(index), -1)
            self._places[views.rows] = np.arange(len(views.rows))

    def batch(self, positions: np.ndarray) -> Tensor:
        """Of the images as they are."""
        return channels_first(torch.as_tensor(self.values[positions]))

    def training_batch(self, positions: np.ndarray, keys: Tensor) -> Tensor:
        """Of a version of each image that its key chooses: one of the views, or the image as it is,
        all equally likely."""
        if self.views is None:
            return self.batch(positions)
        views = self.views.values
        chosen = chosen_versions(keys, len(views)).numpy()
        found = torch.empty((len(positions), *self.values.shape[1:]), dtype=torch.float32)
        for version in range(len(views) + 1):
            here = np.flatnonzero(chosen == version)
            if version == 0:
                rows = self.values[positions[here]]
            else:
                rows = views[version - 1][self._places[positions[here]]]
            found[torch.as_tensor(here)] = torch.as_tensor(rows).float()
        return channels_first(found)


def chosen_versions(keys: Tensor, views: int) -> Tensor:
    """For each key 0, the image as it is, or the number of a view from 1 on."""
    draws = uniform(keys, 1, streams.VIEWS)[:, 0]
    return (draws * (views + 1)).long().clamp(max=views)


def channels_first(stored: Tensor) -> Tensor:
    """Maps as networks take them, without moving anything in memory; other features stay."""
    return stored.permute(0, 3, 1, 2) if stored.ndim == 4 else stored


def as_stored(features: Tensor) -> np.ndarray:
    """The opposite of `channels_first`, as it is written to disk."""
    if features.ndim == 4:
        features = features.permute(0, 2, 3, 1)
    return features.float().contiguous().cpu().numpy()
