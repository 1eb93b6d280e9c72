"""MNIST and what is made of its digits alone: RotatedMNIST and ColoredMNIST."""

import gzip
import math
import threading
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from unseen.data.dataset import Part, PartsDataset
from unseen.data.images import existing_folder, file_state
from unseen.data.index import Index, Split, draw
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
CUT_SHORT = "it is damaged or was cut short; download it again"


def digit_part(
    name: str, file: Path, labels: np.ndarray, read: Callable[[], np.ndarray], labels_file: Path
) -> Part:
    """Check the digits of a file. Their pictures, uint8 [N, height, width] or [N, height, width,
    3], are read when the first one is asked for. `name` ends in train or test."""
    if len(labels) == 0:
        raise DataError(f"{labels_file} holds no digits: {CUT_SHORT}")
    if labels.min() < 0 or labels.max() > 9:
        raise DataError(
            f"{labels_file} holds the labels {labels.min()}..{labels.max()}; expected 0..9"
        )
    lock = threading.Lock()
    kept: list[np.ndarray] = []

    def pixels(row: int) -> np.ndarray:
        with lock:
            if not kept:
                kept.append(read())
                if len(kept[0]) != len(labels):
                    raise DataError(
                        f"{file} holds {len(kept.pop())} images for {len(labels)} labels: "
                        f"{CUT_SHORT}"
                    )
        return kept[0][row]

    split = Split.TEST if name.endswith("test") else None
    classes = [str(label) for label in labels]
    return Part(name, name.rpartition("/")[0], split, classes, file_state(file), pixels)


def read_mnist(folder: Path) -> list[Part]:
    """Read the four files in a folder. Raises DataError naming the one that cannot be used."""
    parts: list[Part] = []
    for part, names in FILES.items():
        images_file, labels_file = (_find(folder, name) for name in names)
        pixels, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(pixels) != len(labels):
            raise DataError(
                f"{images_file} holds {len(pixels)} images but {labels_file} {len(labels)} labels; "
                "take both from the same download"
            )
        read = lambda pixels=pixels: pixels  # noqa: E731
        parts.append(digit_part(f"mnist/{part}", images_file, labels, read, labels_file))
    return parts


def read_idx(file: Path, n_axes: int) -> np.ndarray:
    """Read an IDX file of bytes (magic number, length of each axis, values), maybe gzipped."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({error}): {CUT_SHORT}") from error
    expected = bytes([0, 0, 8, n_axes])  # zeros, the kind (unsigned bytes), and the axes
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


class MNIST(PartsDataset):
    """The 60,000 training digits and the 10,000 official test digits, one domain."""

    row_digits = 5

    def parts(self) -> list[Part]:
        digits = read_mnist(existing_folder(self.root, LAYOUT))
        return [part._replace(name=part.name.removeprefix("mnist/")) for part in digits]

    def build_index(self) -> Index:
        return self.index_of(self.listed(), CLASSES, published=[Split.TEST])


class _Environments(MNIST):
    """Digits dealt out to domains; a subclass says what becomes of one there."""

    classes: ClassVar[tuple[str, ...]] = CLASSES
    domains: ClassVar[tuple[str, ...]]

    def build_index(self) -> Index:
        domains = [self.domains[int(number)] for number in self.dealt]
        names = tuple(
            f"{domain}/{name}" for domain, name in zip(domains, self._digits, strict=True)
        )
        splits = self.draw_splits(names)
        return Index(self.classes, self.domains, names, self.labels, self.dealt, splits)

    @cached_property
    def _digits(self) -> list[str]:
        return [image.name for image in self.listed()]

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all digits, in the order of the files."""
        return np.array([int(image.class_name) for image in self.listed()])

    @cached_property
    def dealt(self) -> np.ndarray:
        """The domain of each digit: every n-th one of the shuffled digits."""
        dealt = np.empty(len(self._digits), dtype=np.int64)
        dealt[np.argsort(self.draws("shuffle"), kind="stable")] = np.arange(len(dealt))
        return dealt % len(self.domains)

    def draws(self, purpose: str) -> np.ndarray:
        """Draw a number in [0, 1) for each digit, another one for each purpose."""
        return np.array([draw(name, purpose) for name in self._digits])


class RotatedMNIST(_Environments):
    """The domain is the angle of rotation in degrees, anticlockwise."""

    domains = ("0", "15", "30", "45", "60", "75")

    def pixels(self, position: int) -> np.ndarray:
        angle = int(self.domains[int(self.dealt[position])])
        digit = Image.fromarray(super().pixels(position))
        return np.asarray(digit.rotate(angle, Image.Resampling.BILINEAR))


class ColoredMNIST(_Environments):
    """Two classes with a quarter of the labels wrong, and a colour that tells the (wrong or right)
    label better than the shape does; the domain says how often, and in the last one it misleads."""

    classes = ("digits 5-9", "digits 0-4")
    domains = ("+90%", "+80%", "-90%")
    flipped_labels = 0.25
    flipped_colours = (0.1, 0.2, 0.9)

    @cached_property
    def labels(self) -> np.ndarray:
        small = np.array([int(image.class_name) < 5 for image in self.listed()])
        return (small ^ (self.draws("label") < self.flipped_labels)).astype(np.int64)

    def pixels(self, position: int) -> np.ndarray:
        """Paint a digit red for label 0 and green for label 1, unless the colour is flipped."""
        digit = super().pixels(position)
        picture = np.zeros((*digit.shape, 3), dtype=np.uint8)
        picture[..., self._colours[position]] = digit
        return picture

    @cached_property
    def _colours(self) -> np.ndarray:
        flips = self.draws("colour") < np.array(self.flipped_colours)[self.dealt]
        return self.labels ^ flips
