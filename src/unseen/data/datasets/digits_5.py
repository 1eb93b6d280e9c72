"""Digits-Five: MNIST, MNIST-M, USPS, SVHN and synthetic digits (Peng et al. 2019).

From the published folder of MATLAB files, or domain by domain from the original files; MNIST-M is
then made of MNIST and photographs, as in the dataset `mnist_m`.
"""

import bz2
import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from pydantic import field_validator

from unseen.data.dataset import Dataset
from unseen.data.datasets.mnist import (
    CUT_SHORT,
    BlendedDigits,
    DigitDomains,
    DigitFile,
    DigitSet,
    photographs_folder,
    read_mnist,
)
from unseen.data.images import existing_folder
from unseen.errors import DataError, unknown_name
from unseen.settings.experiment import Names


def house_numbers(part: str, file: Path) -> DigitFile:
    """Read SVHN, and synthetic digits in its form: X [32, 32, 3, N], y with 10 for the digit 0."""
    labels = _array(file, "y").ravel().astype(np.int64)
    labels[labels == 10] = 0
    return DigitFile(part, file, labels, lambda: _array(file, "X").transpose(3, 0, 1, 2))


def arrays(part: str, file: Path, images: str, labels: str) -> DigitFile:
    """Read arrays [N, height, width, channels] by their names in the file; labels are numbers, or
    a row of ten with a single one."""
    values = _array(file, labels.format(part))
    numbers = values.argmax(axis=1) if values.shape[-1] == 10 else values.ravel()

    def read() -> np.ndarray:
        pixels = _array(file, images.format(part)).astype(np.uint8)
        return pixels[..., 0] if pixels.ndim == 4 and pixels.shape[-1] == 1 else pixels

    return DigitFile(part, file, numbers.astype(np.int64), read)


def usps_cells(part: str, file: Path) -> DigitFile:
    """Read USPS at 28 px: a cell array with a row for each part, images of 0..1 and labels."""
    images, labels = (np.asarray(cell) for cell in _array(file, "dataset")[int(part == "test")])

    def read() -> np.ndarray:
        return (images * 255).astype(np.uint8).reshape(-1, *images.shape[-2:])

    return DigitFile(part, file, labels.ravel().astype(np.int64), read)


def usps_lines(part: str, file: Path) -> DigitFile:
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
    return DigitFile(part, file, values[:, 0].astype(np.int64) - first, lambda: images)


def _array(file: Path, key: str) -> np.ndarray:
    from scipy.io import loadmat  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    try:
        content = cast(dict[str, Any], loadmat(file, variable_names=[key]))
    except Exception as error:  # the reader raises nearly anything when bytes are damaged
        raise DataError(f"{file} is not a readable MATLAB file ({error}): {CUT_SHORT}") from error
    if key not in content:
        raise DataError(f"{file} has no array '{key}'; it is another file than the published one")
    return np.asarray(content[key])


PUBLISHED = {  # training and test images: in the folder Digit-Five, and in the original files
    "mnist": ((55_000, 10_000), (60_000, 10_000)),
    "mnist_m": ((55_000, 10_000), (60_000, 10_000)),
    "usps": ((7_438, 1_860), (7_291, 2_007)),
    "svhn": ((73_257, 26_032),),
    "syn": ((25_000, 9_000), (479_400, 9_553)),
}
FILES: dict[str, dict[str, Callable[[str, Path], DigitFile]]] = {
    "mnist": {"mnist_data.mat": partial(arrays, images="{}_28", labels="label_{}")},
    "mnist_m": {"mnistm_with_label.mat": partial(arrays, images="{}", labels="label_{}")},
    "usps": {
        "usps_28x28.mat": usps_cells,
        "USPS/zip.{part}.gz": usps_lines,
        "USPS/usps{t}.bz2": usps_lines,
    },
    "svhn": {
        "svhn_{part}_32x32.mat": house_numbers,
        "SVHN/{part}_32x32.mat": house_numbers,
    },
    "syn": {
        "syn_number.mat": partial(arrays, images="{}_data", labels="{}_label"),
        "synth_{part}_32x32.mat": house_numbers,
        "SYN/synth_{part}_32x32.mat": house_numbers,
    },
}
"""The files in which each domain is looked for in turn, and what reads them."""
MADE_OF = {
    "mnist": ("MNIST/ (the four IDX files)",),
    "mnist_m": ("MNIST/ and BSDS500/ (photographs)",),
}
"""Where else they come from."""


class Digits5(DigitDomains):
    """Five domains, each from whichever files are there."""

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

    config: Config

    def find(self) -> dict[str, DigitSet]:
        root = existing_folder(self.root, "a folder with the files of Digits-Five")
        found = {domain: _find(domain, root) for domain in self.config.domains}
        sets = {domain: digits for domain, digits in found.items() if digits is not None}
        if len(sets) < len(found):
            missing = [
                f"{domain}: {' or '.join([*FILES[domain], *MADE_OF.get(domain, ())])}"
                for domain in found
                if domain not in sets
            ]
            missing = [text.format(part="{train,test}", t="{,.t}") for text in missing]
            hint = f"\nTo do without them: data.domains={','.join(sets)}" if sets else ""
            raise DataError(f"files are missing in {root}:\n  " + "\n  ".join(missing) + hint)
        return sets

    def remarks(self, sets: dict[str, DigitSet]) -> tuple[str, ...]:
        """Return a remark for each domain with another number of images than the published ones."""
        remarks: list[str] = []
        for domain, digits in sets.items():
            train, test = (len(part.labels) for part in digits.files)
            if (train, test) not in PUBLISHED[domain]:
                published = " or ".join(f"{a:,} + {b:,}" for a, b in PUBLISHED[domain])
                remarks.append(
                    f"{domain} has {train:,} + {test:,} images; {published} are published"
                )
        return tuple(remarks)


def _find(domain: str, root: Path) -> DigitSet | None:
    """Return the digits of a domain; None where the files are not there."""
    for pattern, read in FILES[domain].items():
        files = {
            part: root / pattern.format(part=part, t=ending)
            for part, ending in (("train", ""), ("test", ".t"))
        }
        if all(file.is_file() for file in files.values()):
            return DigitSet([read(part, file) for part, file in files.items()])
    photographs = photographs_folder(root)
    if domain not in MADE_OF or not (root / "MNIST").is_dir():
        return None
    if domain == "mnist":
        return read_mnist(root / "MNIST")
    return BlendedDigits(read_mnist(root / "MNIST"), photographs) if photographs.is_dir() else None
