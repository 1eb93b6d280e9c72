"""Features from the frozen part of a network that stand in for images: plain ones, which measure
and train, and those of augmented copies, which only train."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.data import randomness
from unseen.data.cache import cache_folder, writing_to
from unseen.data.index import Index
from unseen.data.randomness import uniform

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

Parts = Callable[[], Iterable[np.ndarray]]
"""Starts over at each call and gives rows in order, as float32."""

FULL = ("float32",)
COMPACT = ("float16", "float32")
"""Half precision; full where a feature is too large for it (beyond 65,504)."""


class FeatureFile(NamedTuple):
    """An array of features on disk, read through the memory map."""

    name: str
    shape: tuple[int, ...]
    """Rows first."""
    formats: tuple[str, ...]
    """Of its numbers, the preferred one first."""

    @property
    def path(self) -> Path:
        return features_folder() / f"{self.name}.npy"

    @property
    def size(self) -> int:
        """The size in bytes, in the preferred format."""
        return int(np.prod(self.shape)) * np.dtype(self.formats[0]).itemsize

    def open(self) -> np.ndarray | None:
        """Open the array; None when it was not made yet, or when it is incomplete."""
        try:
            values = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError):
            return None
        if values.shape != self.shape or values.dtype.name not in self.formats:
            return None
        return np.asarray(values)

    def write(self, parts: Parts) -> None:
        """Write part by part, into a file that appears once it is complete."""
        for number_format in self.formats:
            try:
                return self._write(parts(), np.dtype(number_format))
            except OverflowError:  # too large for half precision
                continue

    def _write(self, parts: Iterable[np.ndarray], number_format: np.dtype) -> None:
        needed = int(np.prod(self.shape)) * number_format.itemsize
        about = {"descr": number_format.str, "fortran_order": False, "shape": self.shape}
        with room_for(needed), atomic_file(self.path) as temporary, temporary.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, about)
            for part in parts:
                with np.errstate(over="ignore"):
                    numbers = part.astype(number_format)
                if not np.isfinite(numbers).all() and np.isfinite(part).all():
                    raise OverflowError
                stream.write(np.ascontiguousarray(numbers).data)

    @contextmanager
    def claimed(self) -> Generator[bool]:
        """Say whether this process may make it: no other one is just doing so. The claim ends with
        its process, however that ends; what a killed one was writing is removed."""
        if fcntl is None:
            yield True
            return
        place = cache_folder() / "locks" / f"{self.name}.lock"
        with room_for(0):
            place.parent.mkdir(parents=True, exist_ok=True)
            stream = place.open("w")
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            for leftover in self.path.parent.glob(f".{self.path.name}.*.partial"):
                leftover.unlink(missing_ok=True)
            yield True


def features_folder() -> Path:
    """Return the place of all features in the cache."""
    return cache_folder() / "features"


def room_for(needed: int) -> AbstractContextManager[None]:
    """Refuse to write so many bytes of features where the disk is too full for them."""
    larger = "set UNSEEN_CACHE to a folder on a larger disk, or choose fewer network.views"
    return writing_to(features_folder(), needed, "the cache", larger)


class StoredFeatures:
    """Stands in for prepared images: the same rows, as float32 features.

    Where they are maps, channels come last in memory, which networks on a CPU are quicker with.
    """

    def __init__(
        self,
        index: Index,
        values: np.ndarray,
        copied_rows: np.ndarray | None = None,
        copies: Sequence[np.ndarray] = (),
    ) -> None:
        """`values` has a row for each image; maps have their channels last. Each of `copies` has a
        row for each of `copied_rows`: the features of an augmented copy of that image."""
        self.index, self.values = index, values
        self.copied_rows, self.copies = copied_rows, copies
        self._places = np.full(len(index), -1)
        if copied_rows is not None:
            self._places[copied_rows] = np.arange(len(copied_rows))

    def batch(self, positions: np.ndarray) -> Tensor:
        """Return the features of the images as they are."""
        return channels_first(torch.as_tensor(self.values[positions]))

    def training_batch(self, positions: np.ndarray, keys: Tensor) -> Tensor:
        """Return the features of a version of each image that its key chooses: the image as it is,
        or one of its augmented copies, all equally likely."""
        if not self.copies:
            return self.batch(positions)
        chosen = chosen_versions(keys, len(self.copies)).numpy()
        features = np.empty((len(positions), *self.values.shape[1:]), dtype=np.float32)
        for version, values in enumerate((self.values, *self.copies)):
            here = chosen == version
            rows = positions[here]
            features[here] = values[self._places[rows] if version else rows]
        return channels_first(torch.as_tensor(features))


def chosen_versions(keys: Tensor, copies: int) -> Tensor:
    """Choose for each key 0, the image as it is, or the number of an augmented copy from 1 on."""
    draws = uniform(keys, 1, randomness.VIEWS)[:, 0]
    return (draws * (copies + 1)).long().clamp(max=copies)


def channels_first(stored: Tensor) -> Tensor:
    """Turn maps to what networks take, without moving anything in memory; other features stay."""
    return stored.permute(0, 3, 1, 2) if stored.ndim == 4 else stored


def as_stored(features: Tensor) -> np.ndarray:
    """Turn features to what is written to disk, the opposite of `channels_first`."""
    if features.ndim == 4:
        features = features.permute(0, 2, 3, 1)
    return features.float().contiguous().cpu().numpy()
