"""Features of every image from the frozen part of a network: computed once, shared by all runs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder, writing_to
from unseen.data.dataset import Index


class StoredFeatures:
    """Stands in for prepared images: the same rows, as float32 features."""

    def __init__(self, index: Index, values: np.ndarray) -> None:
        self.index = index
        self._values = values

    def batch(self, positions: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(self._values[positions])


def features_file(key: str) -> Path:
    """Where the features of one dataset, network part and image size lie in the cache."""
    return cache_folder() / "features" / f"{key}.npy"


def open_features(key: str, index: Index, shape: tuple[int, ...]) -> StoredFeatures | None:
    """None when they were not computed yet, or when the file is incomplete."""
    try:
        values = np.load(features_file(key), mmap_mode="r")
    except (OSError, ValueError):
        return None
    if values.shape != (len(index), *shape) or values.dtype != np.float32:
        return None
    return StoredFeatures(index, np.asarray(values))


def write_features(
    key: str, count: int, shape: tuple[int, ...], parts: Iterator[np.ndarray]
) -> None:
    """Part by part, into a file that appears once it is complete."""
    file = features_file(key)
    needed = 4 * count * int(np.prod(shape))
    with writing_to(file.parent, needed), atomic_file(file) as temporary:
        values = np.lib.format.open_memmap(temporary, "w+", np.float32, (count, *shape))
        done = 0
        for part in parts:
            values[done : done + len(part)] = part
            done += len(part)
        values.flush()
