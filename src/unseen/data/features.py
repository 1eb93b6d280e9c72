"""Features from the frozen part of a network that stand in for images: plain ones, which measure
and train, and those of augmented views, which only train."""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.data import randomness
from unseen.data.cache import cache_folder, writing_to
from unseen.data.dataset import Index
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


class TooLarge(Exception):
    """A feature does not fit into half precision."""


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
        """In bytes, in the preferred format."""
        return int(np.prod(self.shape)) * np.dtype(self.formats[0]).itemsize

    def open(self) -> np.ndarray | None:
        """None when it was not made yet, or when it is incomplete."""
        try:
            values = np.load(self.path, mmap_mode="r")
        except (OSError, ValueError):
            return None
        if values.shape != self.shape or values.dtype.name not in self.formats:
            return None
        return np.asarray(values)

    def write(self, parts: Parts) -> None:
        """Part by part, into a file that appears once it is complete."""
        for number_format in self.formats:
            try:
                return self._write(parts(), np.dtype(number_format))
            except TooLarge:
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
                    raise TooLarge
                stream.write(np.ascontiguousarray(numbers).data)

    @contextmanager
    def claimed(self) -> Generator[bool]:
        """Whether this process may make it: no other one is just doing so. The claim ends with its
        process, however that ends; what a killed one was writing is removed."""
        place = cache_folder() / "locks" / f"{self.name}.lock"
        with room_for(0):
            place.parent.mkdir(parents=True, exist_ok=True)
            stream = place.open("w")
        with stream:
            mine = fcntl is None or _lock(stream.fileno())
            if mine and fcntl is not None:
                for leftover in features_folder().glob(f".{self.path.name}.*.partial"):
                    leftover.unlink(missing_ok=True)
            yield mine


def features_folder() -> Path:
    return cache_folder() / "features"


def room_for(needed: int) -> AbstractContextManager[None]:
    """To write so many bytes of features: refused where the disk is too full for them."""
    return writing_to(features_folder(), needed, "choose fewer network.views")


def _lock(file: int) -> bool:
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    draws = uniform(keys, 1, randomness.VIEWS)[:, 0]
    return (draws * (views + 1)).long().clamp(max=views)


def channels_first(stored: Tensor) -> Tensor:
    """Maps as networks take them, without moving anything in memory; other features stay."""
    return stored.permute(0, 3, 1, 2) if stored.ndim == 4 else stored


def as_stored(features: Tensor) -> np.ndarray:
    """The opposite of `channels_first`, as it is written to disk."""
    if features.ndim == 4:
        features = features.permute(0, 2, 3, 1)
    return features.float().contiguous().cpu().numpy()
