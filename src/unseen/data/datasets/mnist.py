"""MNIST and MNIST-M: digits, and the same digits blended with photographs (Ganin et al. 2016).

MNIST-M is made here as its authors describe it, out of every MNIST digit and a random patch of a
BSDS500 photograph. The patches are other ones than in the published file, so the task is the same
and the pixels are not.
"""

import gzip
import hashlib
import math
import zlib
from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from PIL import Image

from unseen.data.dataset import ArrayDataset, Index, Published, Split, held_out
from unseen.data.files import existing_folder
from unseen.data.images import open_image
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

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


ANGLES = {"0": 0, "15": 15, "30": 30, "45": 45, "60": 60, "75": 75}
FLIPPED_COLOURS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
FLIPPED_LABELS = 0.25
COLOURED_CLASSES = ("digits 5-9", "digits 0-4")


class _Environments(ArrayDataset):
    """Digits dealt out to domains; a subclass says what becomes of one there."""

    folder_name: ClassVar[str | None] = "MNIST"
    classes: ClassVar[tuple[str, ...]]
    domains: ClassVar[tuple[str, ...]]

    @classmethod
    def published_size(cls) -> Published | None:
        return Published(len(cls.domains), len(cls.classes), 70_000)

    def build_index(self) -> Index:
        config, digits, dealt = self.config, self._digits, self._dealt
        names = tuple(
            f"{self.domains[domain]}/{name}"
            for domain, name in zip(dealt, digits.names, strict=True)
        )
        splits = held_out(names, config.validation_share, config.test_share, config.split_seed)
        return Index(self.classes, self.domains, names, self.labels(), dealt, splits)

    def signature(self, position: int) -> str:
        return self._digits.states[position]

    @abstractmethod
    def labels(self) -> np.ndarray:
        """Of all digits, in the order of the files."""

    @cached_property
    def _digits(self) -> MNISTFiles:
        return read_mnist(existing_folder(self.root, LAYOUT))

    @cached_property
    def _dealt(self) -> np.ndarray:
        """The domain of each digit: every n-th one of the shuffled digits."""
        dealt = np.empty(len(self._digits.names), dtype=np.int64)
        shuffled = np.argsort(_draws("shuffle", self._digits.names), kind="stable")
        dealt[shuffled] = np.arange(len(dealt)) % len(self.domains)
        return dealt


class RotatedMNIST(_Environments):
    """The domain is the angle of rotation in degrees, anticlockwise."""

    classes: ClassVar[tuple[str, ...]] = CLASSES
    domains: ClassVar[tuple[str, ...]] = tuple(ANGLES)

    def labels(self) -> np.ndarray:
        return self._digits.labels

    def pixels(self, position: int) -> np.ndarray:
        angle = ANGLES[self.domains[self._dealt[position]]]
        digit = Image.fromarray(self._digits.images[position])
        return np.asarray(digit.rotate(angle, Image.Resampling.BILINEAR))


class ColoredMNIST(_Environments):
    """Two classes with a quarter of the labels wrong, and a colour that tells the (wrong or right)
    label better than the shape does; the domain says how often, and in the last one it misleads."""

    classes: ClassVar[tuple[str, ...]] = COLOURED_CLASSES
    domains: ClassVar[tuple[str, ...]] = tuple(FLIPPED_COLOURS)

    def labels(self) -> np.ndarray:
        flips = _draws("label", self._digits.names) < FLIPPED_LABELS
        return ((self._digits.labels < 5) ^ flips).astype(np.int64)

    def pixels(self, position: int) -> np.ndarray:
        """Red for label 0 and green for label 1, unless the colour is flipped."""
        picture = np.zeros((*self._digits.images[position].shape, 3), dtype=np.uint8)
        picture[..., self._colours[position]] = self._digits.images[position]
        return picture

    @cached_property
    def _colours(self) -> np.ndarray:
        chances = np.array(list(FLIPPED_COLOURS.values()))[self._dealt]
        return self.labels() ^ (_draws("colour", self._digits.names) < chances)


def _draws(purpose: str, names: tuple[str, ...]) -> np.ndarray:
    """A number in [0, 1) for each name, another one for each purpose."""
    texts = (f"{purpose}\0{name}".encode() for name in names)
    data = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return (np.frombuffer(data, ">u8") >> np.uint64(11)) / 2**53


DOMAINS = ("mnist", "mnist_m")
N_PHOTOGRAPHS = 200
MNIST_M_LAYOUT = (
    "a folder with MNIST/ (the four IDX files) and BSDS500/ (the training photographs as *.jpg, "
    "in it or in its data/images/train/)"
)


class MNISTM(ArrayDataset):
    """Every digit in both domains; one that is held out is held out of both."""

    folder_name: ClassVar[str | None] = "."

    def __init__(self, config: DataSettings, root: Path | None) -> None:
        super().__init__(config, root)
        self._decoded: dict[Path, np.ndarray] = {}

    def build_index(self) -> Index:
        digits, photographs = self._digits, self._photographs
        splits = digits.splits(self.config.validation_share, self.config.split_seed)
        remarks = ()
        if len(photographs) != N_PHOTOGRAPHS:
            remarks = (f"mnist_m is made of {len(photographs)} photographs, not {N_PHOTOGRAPHS}",)
        return Index(
            CLASSES,
            DOMAINS,
            tuple(f"{domain}/{name}" for domain in DOMAINS for name in digits.names),
            np.tile(digits.labels, len(DOMAINS)),
            np.repeat(np.arange(len(DOMAINS)), len(digits.names)),
            np.tile(splits, len(DOMAINS)),
            official_test=True,
            remarks=remarks,
        )

    def signature(self, position: int) -> str:
        domain, number = divmod(position, len(self._digits.names))
        state = self._digits.states[number]
        return f"{state} {self._state_of_photographs}" if domain else state

    def pixels(self, position: int) -> np.ndarray:
        domain, number = divmod(position, len(self._digits.names))
        digit = np.repeat(self._digits.images[number][..., None], 3, axis=2)
        return self._blend(digit, self._digits.names[number]) if domain else digit

    def _blend(self, digit: np.ndarray, name: str) -> np.ndarray:
        """|patch - digit| for each channel; which patch depends on the digit's name alone."""
        draws = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=24).digest(), ">u8")
        photograph = self._photograph(int(draws[0]) % len(self._photographs))
        height, width = digit.shape[:2]
        top, left = (
            int(draw) % (outer - inner + 1)
            for draw, outer, inner in zip(
                draws[1:], photograph.shape, (height, width), strict=False
            )
        )
        patch = photograph[top : top + height, left : left + width]
        return np.maximum(patch, digit) - np.minimum(patch, digit)

    def _photograph(self, number: int) -> np.ndarray:
        """Decoded when first asked for; two threads that ask at once do the same work."""
        file = self._photographs[number]
        if file not in self._decoded:
            photograph = np.asarray(open_image(file, str(file)))
            smallest = self._digits.images[0].shape
            if photograph.shape[0] < smallest[0] or photograph.shape[1] < smallest[1]:
                raise DataError(f"{file} is smaller than a digit; remove it")
            self._decoded[file] = photograph
        return self._decoded[file]

    @cached_property
    def _digits(self) -> MNISTFiles:
        return read_mnist(self._folder("MNIST"))

    @cached_property
    def _photographs(self) -> list[Path]:
        folder = self._folder("BSDS500")
        found = sorted(folder.glob("*.jpg")) or sorted(folder.glob("data/images/train/*.jpg"))
        if not found:
            raise DataError(f"no photographs *.jpg in {folder}; expected {MNIST_M_LAYOUT}")
        return found

    @cached_property
    def _state_of_photographs(self) -> str:
        states = [(file.name, file.stat()) for file in self._photographs]
        text = "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _folder(self, name: str) -> Path:
        return existing_folder(
            place_of(existing_folder(self.root, MNIST_M_LAYOUT), name), MNIST_M_LAYOUT
        )


def place_of(root: Path, name: str) -> Path:
    """Below the root, or where the archive of BSDS500 unpacks itself."""
    unpacked = root / "BSR" / name
    return unpacked if unpacked.is_dir() else root / name
