"""Digits-Five: MNIST, MNIST-M, USPS, SVHN and synthetic digits (Peng et al. 2019).

From the published folder of MATLAB files, or domain by domain from the original files; MNIST-M is
then made of MNIST and photographs, as in the dataset `mnist_m`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import field_validator

from unseen.config import DataSettings, Names
from unseen.data.dataset import ArrayDataset, Dataset, Index, Split, held_out
from unseen.data.datasets.digit_files import (
    DigitSet,
    Part,
    arrays,
    house_numbers,
    usps_cells,
    usps_lines,
)
from unseen.data.datasets.mnist import CLASSES, read_mnist
from unseen.data.datasets.mnist_m import MNISTM, place_of
from unseen.data.files import existing_folder
from unseen.errors import DataError, unknown_name

PUBLISHED = {  # training and test images: in the folder Digit-Five, and in the original files
    "mnist": ((55_000, 10_000), (60_000, 10_000)),
    "mnist_m": ((55_000, 10_000), (60_000, 10_000)),
    "usps": ((7_438, 1_860), (7_291, 2_007)),
    "svhn": ((73_257, 26_032),),
    "syn": ((25_000, 9_000), (479_400, 9_553)),
}
FILES = {
    "mnist": "mnist_data.mat or MNIST/ (the four IDX files)",
    "mnist_m": "mnistm_with_label.mat, or MNIST/ and BSDS500/ (photographs)",
    "usps": "usps_28x28.mat, USPS/zip.{train,test}.gz or USPS/usps{,.t}.bz2",
    "svhn": "svhn_{train,test}_32x32.mat or SVHN/{train,test}_32x32.mat",
    "syn": "syn_number.mat or SYN/synth_{train,test}_32x32.mat",
}


class Digits5(ArrayDataset):
    """Official test digits test; a share of the training digits, drawn by name, validates."""

    folder_name: ClassVar[str | None] = "."

    class Config(Dataset.Config):
        domains: Names = tuple(PUBLISHED)
        """Those to use, where the files of others are not at hand."""

        @field_validator("domains")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            for name in names:
                if name not in PUBLISHED:
                    raise ValueError(unknown_name("domain", name, PUBLISHED))
            return tuple(name for name in PUBLISHED if name in names)

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self.domains = config.domains

    def build_index(self) -> Index:
        sets = self._sets
        names = [f"{domain}/{name}" for domain, digits in sets.items() for name in digits.names]
        drawn = held_out(names, self.config.validation_share, 0, self.config.split_seed)
        tested = [name.split("/")[1] == "test" for name in names]
        return Index(
            CLASSES,
            tuple(sets),
            tuple(names),
            np.concatenate([digits.labels for digits in sets.values()]),
            np.repeat(np.arange(len(sets)), [len(digits.names) for digits in sets.values()]),
            np.where(tested, Split.TEST, drawn).astype(np.uint8),
            official_test=True,
            remarks=_differences(sets),
        )

    def pixels(self, position: int) -> np.ndarray:
        digits, row = self._place(position)
        return digits.pixels(row)

    def signature(self, position: int) -> str:
        digits, row = self._place(position)
        return digits.state(row)

    def _place(self, position: int) -> tuple[DigitSet, int]:
        domain = int(np.searchsorted(self._starts, position, side="right")) - 1
        return list(self._sets.values())[domain], position - int(self._starts[domain])

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum([0, *(len(digits.names) for digits in self._sets.values())])[:-1]

    @cached_property
    def _sets(self) -> dict[str, DigitSet]:
        root = existing_folder(self.root, "a folder with the files of Digits-Five")
        found = {domain: _find(domain, root, self.config) for domain in self.domains}
        missing = [f"{domain}: {FILES[domain]}" for domain, parts in found.items() if parts is None]
        if missing:
            there = ",".join(domain for domain, parts in found.items() if parts is not None)
            hint = f"\nTo do without them: data.domains={there}" if there else ""
            raise DataError(f"files are missing in {root}:\n  " + "\n  ".join(missing) + hint)
        return {domain: DigitSet(parts) for domain, parts in found.items() if parts}


def _find(domain: str, root: Path, config: DataSettings) -> list[Part] | None:
    """The training and the test part; None where the files are not there."""
    if domain == "usps":
        return _find_usps(root)
    if domain in {"svhn", "syn"}:
        return _find_coloured(domain, root)
    name = "mnist_data.mat" if domain == "mnist" else "mnistm_with_label.mat"
    suffix = "_28" if domain == "mnist" else ""
    if (root / name).is_file():
        return [
            arrays(part, root / name, part + suffix, f"label_{part}") for part in ("train", "test")
        ]
    if not (root / "MNIST").is_dir():
        return None
    if domain == "mnist":
        return _parts_of_mnist(root / "MNIST")
    return _made_mnist_m(root, config) if place_of(root, "BSDS500").is_dir() else None


def _find_usps(root: Path) -> list[Part] | None:
    cells = root / "usps_28x28.mat"
    if cells.is_file():
        return [usps_cells(part, cells, row) for row, part in enumerate(("train", "test"))]
    for train, test in (("zip.train.gz", "zip.test.gz"), ("usps.bz2", "usps.t.bz2")):
        files = (root / "USPS" / train, root / "USPS" / test)
        if all(file.is_file() for file in files):
            return [usps_lines("train", files[0]), usps_lines("test", files[1])]
    return None


def _find_coloured(domain: str, root: Path) -> list[Part] | None:
    numbers = root / "syn_number.mat"
    if domain == "syn" and numbers.is_file():
        return [
            arrays(part, numbers, f"{part}_data", f"{part}_label") for part in ("train", "test")
        ]
    forms = ("svhn_{}", "SVHN/{}") if domain == "svhn" else ("synth_{}", "SYN/synth_{}")
    for form in forms:
        files = {part: root / f"{form.format(part)}_32x32.mat" for part in ("train", "test")}
        if all(file.is_file() for file in files.values()):
            return [house_numbers(part, file) for part, file in files.items()]
    return None


def _parts_of_mnist(folder: Path) -> list[Part]:
    digits = read_mnist(folder)
    return [
        _part(
            part, folder, digits.names, digits.labels, digits.states[0], digits.images.__getitem__
        )
        for part in ("train", "test")
    ]


def _made_mnist_m(root: Path, config: DataSettings) -> list[Part]:
    made = MNISTM(config, root)
    index = made.index()
    first = len(index) // 2  # MNIST comes first, then the same digits as MNIST-M
    names = [name.partition("/")[2] for name in index.names[first:]]
    labels = index.labels[first:]
    state = made.signature(first)
    return [
        _part(part, root, names, labels, state, lambda n: made.pixels(first + n))
        for part in ("train", "test")
    ]


def _part(
    name: str,
    place: Path,
    names: Sequence[str],
    labels: np.ndarray,
    state: str,
    pixels: Callable[[int], np.ndarray],
) -> Part:
    """The digits called train/… or test/…, of a dataset that has both."""
    rows = [row for row, digit in enumerate(names) if digit.startswith(f"{name}/")]
    return Part(name, place, state, labels[rows], lambda: np.stack([pixels(row) for row in rows]))


def _differences(sets: dict[str, DigitSet]) -> tuple[str, ...]:
    """A remark for each domain with another number of images than the published ones."""
    remarks: list[str] = []
    for domain, digits in sets.items():
        counts = tuple(digits.counts().values())
        if counts not in PUBLISHED[domain]:
            published = " or ".join(f"{train:,} + {test:,}" for train, test in PUBLISHED[domain])
            remarks.append(
                f"{domain} has {counts[0]:,} + {counts[1]:,} images; {published} are published"
            )
    return tuple(remarks)
