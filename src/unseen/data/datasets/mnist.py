"""MNIST's handwritten digits from their four original IDX files (LeCun et al. 1998)."""

import gzip
import math
import zlib
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from unseen.data.dataset import ArrayDataset, Index, Split, held_out
from unseen.data.files import existing_folder
from unseen.errors import DataError

CLASSES = tuple(str(digit) for digit in range(10))
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
LAYOUT = (
    "the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz, "
    "in it or in its folder raw/"
)
UNSIGNED_BYTES = b"\x00\x00\x08"  # how an IDX file of bytes begins; the number of axes follows
CUT_SHORT = "it is damaged or was cut short; download it again"


class MNISTFiles(NamedTuple):
    """All digits: the training images, then the test images, each in the order of its file."""

    names: tuple[str, ...]
    """`train/00000` to `test/09999`."""
    images: list[np.ndarray]
    """uint8 [height, width], bright strokes on black."""
    labels: np.ndarray
    states: list[str]
    """Size and time of the file that an image came from."""

    def splits(self, validation_share: float, seed: int) -> np.ndarray:
        """The test file tests; a share of the training file, drawn by name, validates."""
        drawn = held_out(self.names, validation_share, 0, seed)
        tests = np.array([name.startswith("test/") for name in self.names])
        return np.where(tests, Split.TEST, drawn).astype(np.uint8)


class MNIST(ArrayDataset):
    """The 60,000 training digits and the 10,000 official test digits, one domain."""

    folder_name: ClassVar[str | None] = "MNIST"

    def build_index(self) -> Index:
        digits = self._digits
        return Index(
            CLASSES,
            ("mnist",),
            digits.names,
            digits.labels,
            np.zeros(len(digits.names), dtype=np.int64),
            digits.splits(self.config.validation_share, self.config.split_seed),
            official_test=True,
        )

    def pixels(self, position: int) -> np.ndarray:
        return self._digits.images[position]

    def signature(self, position: int) -> str:
        return self._digits.states[position]

    @cached_property
    def _digits(self) -> MNISTFiles:
        return read_mnist(existing_folder(self.root, LAYOUT))


def read_mnist(folder: Path) -> MNISTFiles:
    """The four files in a folder. Raises DataError naming the one that cannot be used."""
    names: list[str] = []
    images: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    states: list[str] = []
    for part, (images_name, labels_name) in FILES.items():
        images_file, labels_file = (_find(folder, name) for name in (images_name, labels_name))
        pixels, digits = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(pixels) != len(digits):
            raise DataError(
                f"{images_file} holds {len(pixels)} images but {labels_file} {len(digits)} labels; "
                "take both from the same download"
            )
        if digits.size and digits.max() >= len(CLASSES):
            raise DataError(f"{labels_file} holds the label {digits.max()}; expected 0..9")
        state = images_file.stat()
        names += [f"{part}/{number:05d}" for number in range(len(pixels))]
        images += list(pixels)
        labels.append(digits.astype(np.int64))
        states += [f"{state.st_size} {state.st_mtime_ns}"] * len(pixels)
    return MNISTFiles(tuple(names), images, np.concatenate(labels), states)


def read_idx(file: Path, n_axes: int) -> np.ndarray:
    """An IDX file of bytes (magic number, the length of each axis, the values), maybe gzipped."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({error}): {CUT_SHORT}") from error
    expected = UNSIGNED_BYTES + bytes([n_axes])
    if data[:4] != expected:
        raise DataError(
            f"{file} begins with the bytes {data[:4].hex() or 'of an empty file'}; an IDX file of "
            f"this kind begins with {expected.hex()}: {CUT_SHORT}"
        )
    start = 4 + 4 * n_axes
    lengths = [int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4)]
    if len(data) - start != math.prod(lengths):
        raise DataError(
            f"{file} announces {' x '.join(map(str, lengths))} values and holds "
            f"{max(len(data) - start, 0)}: {CUT_SHORT}"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(lengths)


def _find(folder: Path, name: str) -> Path:
    for place in (folder, folder / "raw"):
        for file in (place / name, place / f"{name}.gz"):
            if file.is_file():
                return file
    raise DataError(f"{name} (or {name}.gz) is not in {folder}; expected {LAYOUT}")
