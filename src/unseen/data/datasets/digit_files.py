"""The files in which handwritten and printed digits are published: MATLAB arrays, lines of text."""

import bz2
import gzip
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from unseen.data.datasets.mnist import CUT_SHORT
from unseen.errors import DataError

USPS_SIDE = 16


class Part(NamedTuple):
    """The training or the test digits of one file."""

    name: str
    """train or test"""
    file: Path
    state: str
    """Changes when the file may have changed."""
    labels: np.ndarray
    images: Callable[[], np.ndarray]
    """Reads uint8 [N, height, width] or [N, height, width, 3], bright or coloured as published."""


class DigitSet:
    """The digits of some parts; pictures are read when the first one of a part is asked for."""

    def __init__(self, parts: Sequence[Part]) -> None:
        for part in parts:
            _check_labels(part)
        self.parts = parts
        self.labels = np.concatenate([part.labels for part in parts])
        self.places = [(part, row) for part in parts for row in range(len(part.labels))]
        self.names = [f"{part.name}/{row:05d}" for part, row in self.places]
        self._read: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()

    def counts(self) -> dict[str, int]:
        return {part.name: len(part.labels) for part in self.parts}

    def state(self, position: int) -> str:
        return self.places[position][0].state

    def pixels(self, position: int) -> np.ndarray:
        part, row = self.places[position]
        with self._lock:
            if part.name not in self._read:
                images = part.images()
                if len(images) != len(part.labels):
                    raise DataError(
                        f"{part.file} holds {len(images)} images for {len(part.labels)} labels: "
                        f"{CUT_SHORT}"
                    )
                self._read[part.name] = images
        return self._read[part.name][row]


def _check_labels(part: Part) -> None:
    if len(part.labels) == 0:
        raise DataError(f"{part.file} holds no digits: {CUT_SHORT}")
    if part.labels.min() < 0 or part.labels.max() > 9:
        found = f"{part.labels.min()}..{part.labels.max()}"
        raise DataError(f"{part.file} holds the labels {found}; expected 0..9")


def house_numbers(name: str, file: Path) -> Part:
    """SVHN, and synthetic digits in its form: X [32, 32, 3, N], y with 10 for the digit 0."""
    labels = _array(file, "y").ravel().astype(np.int64)
    labels[labels == 10] = 0

    def read() -> np.ndarray:
        return _array(file, "X").transpose(3, 0, 1, 2)

    return Part(name, file, _state(file), labels, read)


def arrays(name: str, file: Path, images: str, labels: str) -> Part:
    """Arrays [N, height, width, channels] by their names in the file; labels as numbers, or as a
    row of ten with a single one."""
    values = _array(file, labels)
    numbers = values.argmax(axis=1) if values.shape[-1] == 10 else values.ravel()

    def read() -> np.ndarray:
        found = _array(file, images).astype(np.uint8)
        return found[..., 0] if found.ndim == 4 and found.shape[-1] == 1 else found

    return Part(name, file, _state(file), numbers.astype(np.int64), read)


def usps_cells(name: str, file: Path, row: int) -> Part:
    """USPS at 28 px: a cell array with a row for each part, images of 0..1 and labels."""
    cells = _array(file, "dataset")

    def cell(column: int) -> np.ndarray:
        return np.asarray(cells[row, column])

    def read() -> np.ndarray:
        return (cell(0) * 255).astype(np.uint8).reshape(-1, *cell(0).shape[-2:])

    return Part(name, file, _state(file), cell(1).ravel().astype(np.int64), read)


def usps_lines(name: str, file: Path) -> Part:
    """USPS at 16 px, a line for each digit: label and 256 values of -1..1. In files of LIBSVM
    (.bz2) labels count from 1, and each value is `number:value`."""
    opener, first = (bz2.open, 1) if file.suffix == ".bz2" else (gzip.open, 0)
    try:
        with opener(file, "rt", encoding="ascii") as lines:
            rows = [[word.rpartition(":")[2] for word in line.split()] for line in lines]
        values = np.array([row for row in rows if row], dtype=np.float64)
        pixels = values[:, 1:].reshape(-1, USPS_SIDE, USPS_SIDE)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise DataError(f"{file} cannot be read as lines of 257 numbers: {CUT_SHORT}") from error
    images = np.rint((pixels.clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    labels = values[:, 0].astype(np.int64) - first
    return Part(name, file, _state(file), labels, lambda: images)


def _state(file: Path) -> str:
    state = file.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def _array(file: Path, key: str) -> np.ndarray:
    from scipy.io import loadmat  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    try:
        found = cast(dict[str, Any], loadmat(file, variable_names=[key]))
    except Exception as error:  # the reader raises nearly anything when bytes are damaged
        raise DataError(f"{file} is not a readable MATLAB file ({error}): {CUT_SHORT}") from error
    if key not in found:
        raise DataError(f"{file} has no array '{key}'; it is another file than the published one")
    return np.asarray(found[key])
