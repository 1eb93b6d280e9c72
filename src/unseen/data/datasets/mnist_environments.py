"""RotatedMNIST and ColoredMNIST, made of MNIST as in DomainBed (Gulrajani and Lopez-Paz 2021).

All 70,000 digits are shuffled and dealt out to the domains in turn, so each is in one domain only.
The shuffle and the coin flips follow from a hash of the digit's name: everybody gets the same ones.
"""

import hashlib
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from PIL import Image

from unseen.data.dataset import ArrayDataset, Index, Published, held_out
from unseen.data.datasets.mnist import CLASSES, LAYOUT, MNISTFiles, read_mnist
from unseen.data.files import existing_folder

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
