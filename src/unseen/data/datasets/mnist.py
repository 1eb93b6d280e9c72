"""MNIST, what is made of its digits, and Digits-Five (Peng et al. 2019): digits of several origins.

Digits-Five is read from the published folder of MATLAB files, or domain by domain from the original
files. MNIST-M (Ganin et al. 2016) is made here as its authors describe it, out of every MNIST digit
and a random patch of a BSDS500 photograph. The patches are other ones than in the published file,
so the task is the same and the pixels are not.
"""

import bz2
import gzip
import hashlib
import threading
import zlib
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from PIL import Image
from pydantic import field_validator

from unseen.data.dataset import Dataset, Part, PartsDataset
from unseen.data.images import existing_folder, file_state, open_image
from unseen.data.index import Index, Split, draw
from unseen.errors import DataError, unknown_name
from unseen.settings.experiment import Names

CLASSES = tuple(str(digit) for digit in range(10))
LAYOUT = (
    "the four files {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz, "
    "in it or in its folder raw/"
)
BLENDED_LAYOUT = (
    "a folder with MNIST/ (the four IDX files) and BSDS500/ (the training photographs as "
    "*.jpg, in it or in its data/images/train/)"
)
CUT_SHORT = "it is damaged or was cut short; download it again"


def digit_part(name: str, file: Path, labels: np.ndarray, read: Callable[[], np.ndarray]) -> Part:
    """Check the labels of `domain/train` or `domain/test`. The pictures, uint8 [N, height, width]
    or [N, height, width, 3], are read when the first one is asked for."""
    labels = labels.astype(np.int64)
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        holds = f"the labels {labels.min()}..{labels.max()}" if len(labels) else "no digits"
        raise DataError(f"{file} holds {holds}; expected 0..9: {CUT_SHORT}")
    lock, pictures = threading.Lock(), cache(read)

    def pixels(row: int) -> np.ndarray:
        with lock:
            found = pictures()
        if len(found) != len(labels):
            raise DataError(
                f"{file} holds {len(found)} images for {len(labels)} labels: {CUT_SHORT}"
            )
        return found[row]

    split = Split.TEST if name.endswith("test") else None
    classes = [str(label) for label in labels]
    return Part(name, name.partition("/")[0], split, classes, file_state(file), pixels)


def idx_files(name: str, folder: Path) -> Part:
    """Read the images and the labels of MNIST's training or test digits."""
    start = "t10k" if name.endswith("test") else "train"
    found: list[Path] = []
    for file in (f"{start}-images-idx3-ubyte", f"{start}-labels-idx1-ubyte"):
        places = (f"{below}{file}{end}" for below in ("", "raw/") for end in ("", ".gz"))
        there = next((folder / place for place in places if (folder / place).is_file()), None)
        if there is None:
            raise DataError(f"{file} (or {file}.gz) is not in {folder}; expected {LAYOUT}")
        found.append(there)
    pixels, labels = (read_idx(file, axes) for file, axes in zip(found, (3, 1), strict=True))
    if len(pixels) != len(labels):
        counts = f"{len(pixels)} images but {found[1]} {len(labels)} labels"
        raise DataError(f"{found[0]} holds {counts}; take both from the same download")
    part = digit_part(name, found[1], labels, lambda: pixels)
    return part._replace(state=file_state(found[0]))


def read_idx(file: Path, n_axes: int) -> np.ndarray:
    """Read an IDX file of bytes (magic number, length of each axis, values), maybe gzipped."""
    expected = bytes([0, 0, 8, n_axes])  # zeros, the kind (unsigned bytes), and the axes
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        if data[:4] != expected:
            raise ValueError(f"it begins with {data[:4].hex()}, not with {expected.hex()}")
        lengths = np.frombuffer(data, ">u4", n_axes, offset=4).tolist()
        return np.frombuffer(data, np.uint8, offset=4 + 4 * n_axes).reshape(lengths)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file} cannot be read as an IDX file ({error}): {CUT_SHORT}") from error


def blended(name: str, folder: Path) -> Part:
    """Make MNIST-M of the MNIST beside a folder of photographs: |patch - digit| for each channel,
    with a random patch of a photograph. Which one it is depends on the digit's name alone."""
    root = next((place for place in folder.parents if (place / "MNIST").is_dir()), folder.parent)
    part = idx_files(name, existing_folder(root / "MNIST", BLENDED_LAYOUT))
    photographs, part_name = photographs_in(folder), name.rpartition("/")[2]
    states = "\n".join(f"{file.name} {file_state(file)}" for file in photographs)
    state = f"{part.state} {hashlib.blake2b(states.encode(), digest_size=8).hexdigest()}"

    @cache  # two threads may do the same work
    def photograph(file: Path) -> np.ndarray:
        return np.asarray(open_image(file, str(file)))

    def pixels(row: int) -> np.ndarray:
        digit = np.repeat(part.read(row)[..., None], 3, axis=2)
        draws = hashlib.blake2b(f"{part_name}/{row:05d}".encode(), digest_size=24).digest()
        which, down, right = (int(number) for number in np.frombuffer(draws, ">u8"))
        file = photographs[which % len(photographs)]
        (height, width, _), outer = digit.shape, photograph(file)
        if outer.shape[0] < height or outer.shape[1] < width:
            raise DataError(f"{file} is smaller than a digit; remove it")
        top, left = down % (outer.shape[0] - height + 1), right % (outer.shape[1] - width + 1)
        patch = outer[top : top + height, left : left + width]
        return np.maximum(patch, digit) - np.minimum(patch, digit)

    return part._replace(state=state, read=pixels)


def photographs_in(folder: Path) -> list[Path]:
    """Find the photographs in a folder, or in BSDS500 as its archive unpacks."""
    photographs = sorted(folder.glob("*.jpg")) or sorted(folder.glob("data/images/train/*.jpg"))
    if not photographs:
        raise DataError(f"no photographs *.jpg in {folder}; expected {BLENDED_LAYOUT}")
    return photographs


def house_numbers(name: str, file: Path) -> Part:
    """Read SVHN, and synthetic digits in its form: X [32, 32, 3, N], y with 10 for the digit 0."""
    labels = _array(file, "y").ravel()
    pictures = lambda: _array(file, "X").transpose(3, 0, 1, 2)  # noqa: E731
    return digit_part(name, file, np.where(labels == 10, 0, labels), pictures)


def arrays(name: str, file: Path, images: str, labels: str) -> Part:
    """Read arrays [N, height, width, channels] by their names in the file; labels are numbers, or
    a row of ten with a single one."""
    part = name.rpartition("/")[2]
    values = _array(file, labels.format(part))
    numbers = values.argmax(axis=1) if values.shape[-1] == 10 else values.ravel()

    def read() -> np.ndarray:
        pixels = _array(file, images.format(part)).astype(np.uint8)
        return pixels[..., 0] if pixels.ndim == 4 and pixels.shape[-1] == 1 else pixels

    return digit_part(name, file, numbers, read)


def usps_cells(name: str, file: Path) -> Part:
    """Read USPS at 28 px: a cell array with a row for each part, images of 0..1 and labels."""
    cells = _array(file, "dataset")[int(name.endswith("test"))]
    images, labels = (np.asarray(cell) for cell in cells)
    pixels = (images * 255).astype(np.uint8).reshape(-1, *images.shape[-2:])
    return digit_part(name, file, labels.ravel(), lambda: pixels)


def usps_lines(name: str, file: Path) -> Part:
    """Read USPS at 16 px, a line for each digit: label and 256 values of -1..1. In files of LIBSVM
    (.bz2) labels count from 1, and each value is `number:value`."""
    opener, first = (bz2.open, 1) if file.suffix == ".bz2" else (gzip.open, 0)
    try:
        with opener(file, "rt", encoding="ascii") as lines:
            rows = [[word.rpartition(":")[2] for word in line.split()] for line in lines]
        values = np.array([row for row in rows if row], dtype=np.float64)
        pixels = values[:, 1:].reshape(-1, 16, 16)
    except (OSError, EOFError, ValueError, IndexError) as error:
        raise DataError(f"{file} cannot be read as lines of 257 numbers: {CUT_SHORT}") from error
    images = np.rint((pixels.clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    return digit_part(name, file, values[:, 0] - first, lambda: images)


def _array(file: Path, key: str) -> np.ndarray:
    from scipy.io import loadmat  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    try:
        content = cast(dict[str, Any], loadmat(file, variable_names=[key]))
    except Exception as error:  # the reader raises nearly anything when bytes are damaged
        raise DataError(f"{file} is not a readable MATLAB file ({error}): {CUT_SHORT}") from error
    if key not in content:
        raise DataError(f"{file} has no array '{key}'; it is another file than the published one")
    return np.asarray(content[key])


class MNIST(PartsDataset):
    """The 60,000 training digits and the 10,000 official test digits, one domain."""

    row_digits = 5

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, LAYOUT)
        return [idx_files(f"mnist/{name}", root)._replace(name=name) for name in ("train", "test")]

    def build_index(self) -> Index:
        return self.index_of(self.listed, CLASSES, published=[Split.TEST])


class _Environments(MNIST):
    """Digits dealt out to domains; a subclass says what becomes of one there."""

    classes: ClassVar[tuple[str, ...]] = CLASSES
    domains: ClassVar[tuple[str, ...]]

    def build_index(self) -> Index:
        dealt = zip(self.dealt.tolist(), self.listed, strict=True)
        names = tuple(f"{self.domains[domain]}/{image.name}" for domain, image in dealt)
        splits = self.draw_splits(names)
        return Index(self.classes, self.domains, names, self.labels, self.dealt, splits)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of all digits, in the order of the files."""
        return np.array([int(image.class_name) for image in self.listed])

    @cached_property
    def dealt(self) -> np.ndarray:
        """The domain of each digit: every n-th one of the shuffled digits."""
        dealt = np.empty(len(self.listed), dtype=np.int64)
        dealt[np.argsort(self.draws("shuffle"), kind="stable")] = np.arange(len(dealt))
        return dealt % len(self.domains)

    def draws(self, purpose: str) -> np.ndarray:
        """Draw a number in [0, 1) for each digit, another one for each purpose."""
        return np.array([draw(image.name, purpose) for image in self.listed])


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
        small = np.array([int(image.class_name) < 5 for image in self.listed])
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


FILES: dict[str, dict[str, Callable[[str, Path], Part]]] = {
    "mnist": {
        "mnist_data.mat": partial(arrays, images="{}_28", labels="label_{}"),
        "MNIST": idx_files,
    },
    "mnist_m": {
        "mnistm_with_label.mat": partial(arrays, images="{}", labels="label_{}"),
        "BSR/BSDS500": blended,  # where its archive unpacks itself
        "BSDS500": blended,
    },
    "usps": {
        "usps_28x28.mat": usps_cells,
        "USPS/zip.{part}.gz": usps_lines,
        "USPS/usps{t}.bz2": usps_lines,
    },
    "svhn": {"svhn_{part}_32x32.mat": house_numbers, "SVHN/{part}_32x32.mat": house_numbers},
    "syn": {
        "syn_number.mat": partial(arrays, images="{}_data", labels="{}_label"),
        "synth_{part}_32x32.mat": house_numbers,
        "SYN/synth_{part}_32x32.mat": house_numbers,
    },
}
"""The files or folders in which each domain is looked for in turn, and what reads them."""


class Digits5(PartsDataset):
    """Five domains, each from whichever files are there."""

    row_digits = 5

    class Config(Dataset.Config):
        domains: Names = tuple(FILES)
        """Domains to use, if files of others are missing."""

        @field_validator("domains")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            for name in names:
                if name not in FILES:
                    raise ValueError(unknown_name("domain", name, FILES))
            return tuple(name for name in FILES if name in names)

    config: Config

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, "a folder with the files of Digits-Five")
        parts: list[Part] = []
        missing: list[str] = []
        for domain in self.config.domains:
            for pattern, reader in FILES[domain].items():
                files = (pattern.format(part="train", t=""), pattern.format(part="test", t=".t"))
                if all((root / file).exists() for file in files):
                    names = (f"{domain}/train", f"{domain}/test")
                    parts += [reader(n, root / f) for n, f in zip(names, files, strict=True)]
                    break
            else:
                patterns = " or ".join(FILES[domain]).format(part="{train,test}", t="{,.t}")
                missing.append(f"{domain}: {patterns}")
        if missing:
            there = ",".join(dict.fromkeys(part.domain for part in parts))
            hint = f"\nTo do without them: data.domains={there}" if there else ""
            raise DataError(f"files are missing in {root}:\n  " + "\n  ".join(missing) + hint)
        return parts

    def build_index(self) -> Index:
        return self.index_of(self.listed, CLASSES, self.config.domains, published=[Split.TEST])


class MNISTM(PartsDataset):
    """Every digit, plain and blended with a photograph."""

    row_digits = 5

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, BLENDED_LAYOUT)
        digits = existing_folder(root / "MNIST", BLENDED_LAYOUT)
        unpacked = root / "BSR/BSDS500"  # where its archive unpacks itself
        place = existing_folder(unpacked if unpacked.is_dir() else root / "BSDS500", BLENDED_LAYOUT)
        self._photographs = len(photographs_in(place))
        parts = ("train", "test")
        plain = [idx_files(f"mnist/{part}", digits) for part in parts]
        return plain + [blended(f"mnist_m/{part}", place) for part in parts]

    def build_index(self) -> Index:
        """A digit that is held out in one domain is held out in both: its name without the domain
        decides."""
        digits = [image.name.partition("/")[2] for image in self.listed]
        number = self._photographs
        remarks = () if number == 200 else (f"mnist_m is made of {number} photographs, not 200",)
        return self.index_of(self.listed, CLASSES, None, remarks, [Split.TEST], digits)
