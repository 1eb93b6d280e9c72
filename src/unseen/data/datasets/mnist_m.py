"""MNIST and MNIST-M: digits, and the same digits blended with photographs (Ganin et al. 2016).

MNIST-M is made here as its authors describe it, out of every MNIST digit and a random patch of a
BSDS500 photograph. The patches are other ones than in the published file, so the task is the same
and the pixels are not.
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.config import DataSettings
from unseen.data.dataset import ArrayDataset, Index
from unseen.data.datasets.mnist import CLASSES, MNISTFiles, read_mnist
from unseen.data.files import existing_folder
from unseen.data.images import open_image
from unseen.errors import DataError

DOMAINS = ("mnist", "mnist_m")
N_PHOTOGRAPHS = 200
LAYOUT = (
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
            raise DataError(f"no photographs *.jpg in {folder}; expected {LAYOUT}")
        return found

    @cached_property
    def _state_of_photographs(self) -> str:
        states = [(file.name, file.stat()) for file in self._photographs]
        text = "\n".join(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _folder(self, name: str) -> Path:
        return existing_folder(place_of(existing_folder(self.root, LAYOUT), name), LAYOUT)


def place_of(root: Path, name: str) -> Path:
    """Below the root, or where the archive of BSDS500 unpacks itself."""
    unpacked = root / "BSR" / name
    return unpacked if unpacked.is_dir() else root / name
