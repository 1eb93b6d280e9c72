"""What the frozen part of a network makes of every image: computed once, shared by all runs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder, check_space
from unseen.data.dataset import Index
from unseen.errors import DataError


class StoredFeatures:
    """Stands in for prepared images: the same rows, as float32 features."""

    def __init__(self, index: Index, values: np.ndarray) -> None:
        self.index = index
        self._values = values

    def batch(self, positions: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self._values[positions])


def features_file(key: str) -> Path:
    """Where the features of one dataset, network part and image size lie in the cache."""
    return cache_folder() / "features" / f"{key}.npy"


def open_features(key: str, index: Index, shape: tuple[int, ...]) -> StoredFeatures | None:
    """None when they were not computed yet, or when the file is not whole."""
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
    """Part by part into a file that appears when it is whole."""
    file = features_file(key)
    check_space(file.parent, 4 * count * int(np.prod(shape)))
    try:
        with atomic_file(file) as temporary:
            values = np.lib.format.open_memmap(temporary, "w+", np.float32, (count, *shape))
            done = 0
            for part in parts:
                values[done : done + len(part)] = part
                done += len(part)
            values.flush()
    except OSError as error:
        raise DataError(
            f"the cache {file.parent} cannot be written ({error}); "
            f"UNSEEN_CACHE=DIR chooses another folder"
        ) from error
