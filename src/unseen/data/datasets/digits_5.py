"""Digits-Five: MNIST, MNIST-M, USPS, SVHN and synthetic digits (Peng et al. 2019).

From the published folder of MATLAB files, or domain by domain from the original files; MNIST-M is
then made of MNIST and photographs, as in the dataset `mnist_m`.
"""

import bz2
import gzip
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from pydantic import field_validator

from unseen.data.dataset import ArrayDataset, Dataset, Index, Split, held_out
from unseen.data.datasets.mnist import CLASSES, CUT_SHORT, MNISTM, place_of, read_mnist
from unseen.data.files import existing_folder
from unseen.errors import DataError, unknown_name
from unseen.settings.experiment import DataSettings, Names

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
