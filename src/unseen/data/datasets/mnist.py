"""MNIST and what is made of it: MNIST-M (Ganin et al. 2016), RotatedMNIST and ColoredMNIST.

MNIST-M is made here as its authors describe it, out of every MNIST digit and a random patch of a
BSDS500 photograph. The patches are other ones than in the published file, so the task is the same
and the pixels are not.
"""

import gzip
import hashlib
import math
import threading
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from PIL import Image

from unseen.data.dataset import ArrayDataset, Index, Published, Split, draw, place_in_parts
from unseen.data.images import existing_folder, file_state, open_image
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


class DigitFile(NamedTuple):
    """The training or the test digits of one file."""

    part: str
    """train or test"""
    file: Path
    labels: np.ndarray
    read: Callable[[], np.ndarray]
    """Reads uint8 [N, height, width] or [N, height, width, 3], bright or coloured as published."""


class DigitSet:
    """The digits of some files; pictures are read when the first one of a file is asked for."""

    def __init__(self, files: Sequence[DigitFile]) -> None:
        for part in files:
            if len(part.labels) == 0:
                raise DataError(f"{part.file} holds no digits: {CUT_SHORT}")
            lowest, highest = part.labels.min(), part.labels.max()
            if lowest < 0 or highest > 9:
                raise DataError(f"{part.file} holds the labels {lowest}..{highest}; expected 0..9")
        self.files = files
        self.labels = np.concatenate([part.labels for part in files]).astype(np.int64)
        self.names = [f"{p.part}/{row:05d}" for p in files for row in range(len(p.labels))]
        """`train/00000` and so on, each in the order of its file."""
        self._ends = np.cumsum([len(part.labels) for part in files])
        self._states = [file_state(part.file) for part in files]
        self._pixels: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def state(self, position: int) -> str:
        """Return a text that changes when the file of a digit may have changed."""
        return self._states[place_in_parts(self._ends, position)[0]]

    def pixels(self, position: int) -> np.ndarray:
        """Return one picture, in gray or in colour."""
        number, row = place_in_parts(self._ends, position)
        with self._lock:
            if number not in self._pixels:
                part = self.files[number]
                images = part.read()
                if len(images) != len(part.labels):
                    raise DataError(
                        f"{part.file} holds {len(images)} images for {len(part.labels)} labels: "
                        f"{CUT_SHORT}"
                    )
                self._pixels[number] = images
        return self._pixels[number][row]


class BlendedDigits(DigitSet):
    """MNIST-M: |patch - digit| for each channel, with a random patch of a photograph."""

    def __init__(self, digits: DigitSet, folder: Path) -> None:
        """`folder`: that of the photographs, or BSDS500 as its archive unpacks."""
        super().__init__(digits.files)
        self.photographs = sorted(folder.glob("*.jpg"))
        self.photographs = self.photographs or sorted(folder.glob("data/images/train/*.jpg"))
        if not self.photographs:
            raise DataError(f"no photographs *.jpg in {folder}; expected {MNISTM.layout}")
        states = "\n".join(f"{file.name} {file_state(file)}" for file in self.photographs)
        self._all_states = hashlib.blake2b(states.encode(), digest_size=8).hexdigest()
        self._decoded: dict[int, np.ndarray] = {}

    def state(self, position: int) -> str:
        return f"{super().state(position)} {self._all_states}"

    def pixels(self, position: int) -> np.ndarray:
        """Blend a digit with a patch; which one depends on the digit's name alone."""
        digit = np.repeat(super().pixels(position)[..., None], 3, axis=2)
        name = self.names[position].encode()
        draws = [
            int(d) for d in np.frombuffer(hashlib.blake2b(name, digest_size=24).digest(), ">u8")
        ]
        photograph = self._photograph(draws[0] % len(self.photographs), digit)
        (height, width, _), (outer_height, outer_width, _) = digit.shape, photograph.shape
        top, left = draws[1] % (outer_height - height + 1), draws[2] % (outer_width - width + 1)
        patch = photograph[top : top + height, left : left + width]
        return np.maximum(patch, digit) - np.minimum(patch, digit)

    def _photograph(self, number: int, digit: np.ndarray) -> np.ndarray:
        """Decode a photograph when first asked for; two threads may do the same work at once."""
        if number not in self._decoded:
            file = self.photographs[number]
            photograph = np.asarray(open_image(file, str(file)))
            if photograph.shape[0] < digit.shape[0] or photograph.shape[1] < digit.shape[1]:
                raise DataError(f"{file} is smaller than a digit; remove it")
            self._decoded[number] = photograph
        return self._decoded[number]


def photographs_folder(root: Path) -> Path:
    """Return BSDS500 below the root, or where its archive unpacks itself."""
    unpacked = root / "BSR" / "BSDS500"
    return unpacked if unpacked.is_dir() else root / "BSDS500"


def read_mnist(folder: Path) -> DigitSet:
    """Read the four files in a folder. Raises DataError naming the one that cannot be used."""
    parts: list[DigitFile] = []
    for part, names in FILES.items():
        images_file, labels_file = (_find(folder, name) for name in names)
        pixels, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
        if len(pixels) != len(labels):
            raise DataError(
                f"{images_file} holds {len(pixels)} images but {labels_file} {len(labels)} labels; "
                "take both from the same download"
            )
        if labels.size and labels.max() > 9:
            raise DataError(f"{labels_file} holds the label {labels.max()}; expected 0..9")
        parts.append(DigitFile(part, images_file, labels, lambda pixels=pixels: pixels))
    return DigitSet(parts)


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


class DigitDomains(ArrayDataset):
    """Domains of digits; official test digits test, a share of the others, by name, validates."""

    held_out_everywhere: ClassVar[bool] = False
    """A digit that is held out in one domain is held out in all of them."""

    @abstractmethod
    def find(self) -> dict[str, DigitSet]:
        """Return the digits of each domain."""

    def remarks(self, sets: dict[str, DigitSet]) -> tuple[str, ...]:
        """Return what is odd about the files."""
        return ()

    @cached_property
    def _sets(self) -> dict[str, DigitSet]:
        return self.find()

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(digits.names) for digits in self._sets.values()])

    def build_index(self) -> Index:
        sets = self._sets
        digits = [name for each in sets.values() for name in each.names]
        domain_of = np.repeat(np.arange(len(sets)), [len(each.names) for each in sets.values()])
        domains = tuple(sets)
        names = [f"{domains[d]}/{name}" for d, name in zip(domain_of, digits, strict=True)]
        drawn = self.draw_splits(digits if self.held_out_everywhere else names, [Split.TEST])
        tested = [name.startswith("test/") for name in digits]
        return Index(
            CLASSES,
            domains,
            tuple(names),
            np.concatenate([each.labels for each in sets.values()]),
            domain_of,
            np.where(tested, Split.TEST, drawn).astype(np.uint8),
            official_test=True,
            remarks=self.remarks(sets),
        )

    def _place(self, position: int) -> tuple[DigitSet, int]:
        domain, row = place_in_parts(self._ends, position)
        return list(self._sets.values())[domain], row

    def pixels(self, position: int) -> np.ndarray:
        digits, row = self._place(position)
        return digits.pixels(row)

    def signature(self, position: int) -> str:
        digits, row = self._place(position)
        return digits.state(row)


class MNIST(DigitDomains):
    """The 60,000 training digits and the 10,000 official test digits, one domain."""

    folder_name: ClassVar[str | None] = "MNIST"
    held_out_everywhere = True

    def find(self) -> dict[str, DigitSet]:
        return {"mnist": read_mnist(existing_folder(self.root, LAYOUT))}

    def build_index(self) -> Index:
        return replace(super().build_index(), names=tuple(self._sets["mnist"].names))


class MNISTM(DigitDomains):
    """Every digit, plain and blended with a photograph."""

    folder_name: ClassVar[str | None] = "."
    held_out_everywhere = True
    layout = (
        "a folder with MNIST/ (the four IDX files) and BSDS500/ (the training photographs as "
        "*.jpg, in it or in its data/images/train/)"
    )

    def find(self) -> dict[str, DigitSet]:
        root = existing_folder(self.root, self.layout)
        digits = read_mnist(existing_folder(root / "MNIST", self.layout))
        photographs = existing_folder(photographs_folder(root), self.layout)
        self._blended = BlendedDigits(digits, photographs)
        return {"mnist": digits, "mnist_m": self._blended}

    def remarks(self, sets: dict[str, DigitSet]) -> tuple[str, ...]:
        number = len(self._blended.photographs)
        return () if number == 200 else (f"mnist_m is made of {number} photographs, not 200",)


class _Environments(ArrayDataset):
    """Digits dealt out to domains; a subclass says what becomes of one there."""

    folder_name: ClassVar[str | None] = "MNIST"
    classes: ClassVar[tuple[str, ...]] = CLASSES
    domains: ClassVar[tuple[str, ...]]

    def build_index(self) -> Index:
        domains, dealt = self.domains, self._dealt
        digits = zip(dealt, self._digits.names, strict=True)
        names = tuple(f"{domains[domain]}/{name}" for domain, name in digits)
        return Index(self.classes, domains, names, self.labels, dealt, self.draw_splits(names))

    def signature(self, position: int) -> str:
        return self._digits.state(position)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all digits, in the order of the files."""
        return self._digits.labels

    @cached_property
    def _digits(self) -> DigitSet:
        return read_mnist(existing_folder(self.root, LAYOUT))

    @cached_property
    def _dealt(self) -> np.ndarray:
        """The domain of each digit: every n-th one of the shuffled digits."""
        dealt = np.empty(len(self._digits.names), dtype=np.int64)
        dealt[np.argsort(self._draws("shuffle"), kind="stable")] = np.arange(len(dealt))
        return dealt % len(self.domains)

    def _draws(self, purpose: str) -> np.ndarray:
        """Draw a number in [0, 1) for each digit, another one for each purpose."""
        return np.array([draw(name, purpose) for name in self._digits.names])


class RotatedMNIST(_Environments):
    """The domain is the angle of rotation in degrees, anticlockwise."""

    published_size = Published(domains=6, classes=10, images=70_000)
    domains = ("0", "15", "30", "45", "60", "75")

    def pixels(self, position: int) -> np.ndarray:
        angle = int(self.domains[int(self._dealt[position])])
        digit = Image.fromarray(self._digits.pixels(position))
        return np.asarray(digit.rotate(angle, Image.Resampling.BILINEAR))


class ColoredMNIST(_Environments):
    """Two classes with a quarter of the labels wrong, and a colour that tells the (wrong or right)
    label better than the shape does; the domain says how often, and in the last one it misleads."""

    published_size = Published(domains=3, classes=2, images=70_000)
    classes = ("digits 5-9", "digits 0-4")
    domains = ("+90%", "+80%", "-90%")
    flipped_labels = 0.25
    flipped_colours = (0.1, 0.2, 0.9)

    @cached_property
    def labels(self) -> np.ndarray:
        flips = self._draws("label") < self.flipped_labels
        return ((self._digits.labels < 5) ^ flips).astype(np.int64)

    def pixels(self, position: int) -> np.ndarray:
        """Paint a digit red for label 0 and green for label 1, unless the colour is flipped."""
        digit = self._digits.pixels(position)
        picture = np.zeros((*digit.shape, 3), dtype=np.uint8)
        picture[..., self._colours[position]] = digit
        return picture

    @cached_property
    def _colours(self) -> np.ndarray:
        flips = self._draws("colour") < np.array(self.flipped_colours)[self._dealt]
        return self.labels ^ flips
