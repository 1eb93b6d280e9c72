"""Confusion matrices: in memory once they are counted, read from a file when they are asked for.

With 345 classes one matrix is a megabyte; a run has dozens of them. No torch.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from unseen.errors import UnseenError
from unseen.records.arrays import Array, read_array, write_arrays


class Confusion:
    """Images of each true class (row) that were called each class (column)."""

    def __init__(self, counts: Array | None = None, stored: tuple[Path, int] | None = None) -> None:
        self._counts = counts
        self._stored = stored
        self._derived: dict[Callable[[Array], float], float] = {}

    def read(self) -> Array:
        """`int64 [classes, classes]`. Stored counts are read anew each time and not kept."""
        if self._counts is not None:
            return self._counts
        assert self._stored is not None
        path, number = self._stored
        counts = read_array(path, str(number))
        if counts.ndim != 2 or len(set(counts.shape)) != 1 or counts.dtype.kind != "u":
            raise UnseenError(f"{path} is damaged: array '{number}' is no confusion matrix")
        return counts.astype(np.int64)

    def derived(self, formula: Callable[[Array], float]) -> float:
        """A number that follows from the counts; it is kept, unlike counts that were read."""
        if formula not in self._derived:
            self._derived[formula] = formula(self.read())
        return self._derived[formula]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Confusion):
            return NotImplemented
        return np.array_equal(self.read(), other.read())

    __hash__ = None  # type: ignore[assignment]


class ConfusionFile:
    """Collects the matrices of a run. Equal ones, as of two rules that chose one step, share a
    place."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._arrays: dict[str, Array] = {}

    def add(self, confusion: Confusion) -> int:
        """The number of the matrix in the file."""
        counts = confusion.read()
        compact = counts.astype(np.min_scalar_type(int(counts.max(initial=0))))
        number = self._places.setdefault(compact.tobytes(), len(self._places))
        self._arrays[str(number)] = compact
        return number

    def write(self, path: Path) -> None:
        write_arrays(path, self._arrays, compress=True)
