"""Files of features in the cache: complete or absent, and made by one process at a time."""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder, writing_to

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
