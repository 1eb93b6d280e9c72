"""Digits-Five (Peng et al. 2019) and MNIST-M (Ganin et al. 2016): digits of several origins.

Digits-Five is read from the published folder of MATLAB files, or domain by domain from the original
files. MNIST-M is made here as its authors describe it, out of every MNIST digit and a random patch
of a BSDS500 photograph. The patches are other ones than in the published file, so the task is the
same and the pixels are not.
"""

import bz2
import gzip
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import field_validator

from unseen.data.dataset import Dataset, Part, PartsDataset
from unseen.data.datasets.mnist import CLASSES, CUT_SHORT, digit_part, read_mnist
from unseen.data.images import existing_folder, file_state, open_image
from unseen.data.index import Index, Split
from unseen.errors import DataError, unknown_name
from unseen.settings.experiment import Names

LAYOUT = (
    "a folder with MNIST/ (the four IDX files) and BSDS500/ (the training photographs as "
    "*.jpg, in it or in its data/images/train/)"
)
Digits = tuple[np.ndarray, Callable[[], np.ndarray]]
"""Labels, and what reads the pictures."""


def house_numbers(part: str, file: Path) -> Digits:
    """Read SVHN, and synthetic digits in its form: X [32, 32, 3, N], y with 10 for the digit 0."""
    labels = _array(file, "y").ravel().astype(np.int64)
    return np.where(labels == 10, 0, labels), lambda: _array(file, "X").transpose(3, 0, 1, 2)


def arrays(part: str, file: Path, images: str, labels: str) -> Digits:
    """Read arrays [N, height, width, channels] by their names in the file; labels are numbers, or
    a row of ten with a single one."""
    values = _array(file, labels.format(part))
    numbers = values.argmax(axis=1) if values.shape[-1] == 10 else values.ravel()

    def read() -> np.ndarray:
        pixels = _array(file, images.format(part)).astype(np.uint8)
        return pixels[..., 0] if pixels.ndim == 4 and pixels.shape[-1] == 1 else pixels

    return numbers.astype(np.int64), read


def usps_cells(part: str, file: Path) -> Digits:
    """Read USPS at 28 px: a cell array with a row for each part, images of 0..1 and labels."""
    images, labels = (np.asarray(cell) for cell in _array(file, "dataset")[int(part == "test")])
    pixels = (images * 255).astype(np.uint8).reshape(-1, *images.shape[-2:])
    return labels.ravel().astype(np.int64), lambda: pixels


def usps_lines(part: str, file: Path) -> Digits:
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
    return values[:, 0].astype(np.int64) - first, lambda: images


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
FILES: dict[str, dict[str, Callable[[str, Path], Digits]]] = {
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


class Digits5(PartsDataset):
    """Five domains, each from whichever files are there."""

    row_digits = 5

    class Config(Dataset.Config):
        domains: Names = tuple(PUBLISHED)
        """Domains to use, if files of others are missing."""

        @field_validator("domains")
        @classmethod
        def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
            for name in names:
                if name not in PUBLISHED:
                    raise ValueError(unknown_name("domain", name, PUBLISHED))
            return tuple(name for name in PUBLISHED if name in names)

    config: Config

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, "a folder with the files of Digits-Five")
        found = {domain: _find(domain, root) for domain in self.config.domains}
        there = [domain for domain, parts in found.items() if parts]
        if len(there) < len(found):
            missing = [
                f"{domain}: {' or '.join([*FILES[domain], *MADE_OF.get(domain, ())])}"
                for domain in found
                if domain not in there
            ]
            missing = [text.format(part="{train,test}", t="{,.t}") for text in missing]
            hint = f"\nTo do without them: data.domains={','.join(there)}" if there else ""
            raise DataError(f"files are missing in {root}:\n  " + "\n  ".join(missing) + hint)
        return [part for parts in found.values() for part in parts]

    def build_index(self) -> Index:
        remarks: list[str] = []
        for train, test in zip(self.all_parts[::2], self.all_parts[1::2], strict=True):
            sizes = len(train.classes), len(test.classes)
            if sizes not in PUBLISHED[train.domain]:
                published = " or ".join(f"{a:,} + {b:,}" for a, b in PUBLISHED[train.domain])
                remarks.append(
                    f"{train.domain} has {sizes[0]:,} + {sizes[1]:,} images; {published} are "
                    "published"
                )
        domains = self.config.domains
        return self.index_of(self.listed(), CLASSES, domains, remarks, [Split.TEST])


class MNISTM(PartsDataset):
    """Every digit, plain and blended with a photograph."""

    row_digits = 5

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, LAYOUT)
        digits = read_mnist(existing_folder(root / "MNIST", LAYOUT))
        self.photographs = photographs_in(existing_folder(_photographs_folder(root), LAYOUT))
        return [*digits, *(blended(part, self.photographs) for part in digits)]

    def build_index(self) -> Index:
        """A digit that is held out in one domain is held out in both: its name without the domain
        decides."""
        listed, number = self.listed(), len(self.photographs)
        remarks = () if number == 200 else (f"mnist_m is made of {number} photographs, not 200",)
        digits = [image.name.partition("/")[2] for image in listed]
        return self.index_of(listed, CLASSES, None, remarks, [Split.TEST], digits)


def _find(domain: str, root: Path) -> list[Part]:
    """Return the training and the test digits of a domain; nothing where the files are missing."""
    for pattern, read in FILES[domain].items():
        files = {
            part: root / pattern.format(part=part, t=ending)
            for part, ending in (("train", ""), ("test", ".t"))
        }
        if all(file.is_file() for file in files.values()):
            return [
                digit_part(f"{domain}/{part}", file, *read(part, file), file)
                for part, file in files.items()
            ]
    photographs = _photographs_folder(root)
    if domain not in MADE_OF or not (root / "MNIST").is_dir():
        return []
    if domain == "mnist":
        return read_mnist(root / "MNIST")
    if not photographs.is_dir():
        return []
    files_there = photographs_in(photographs)
    return [blended(part, files_there) for part in read_mnist(root / "MNIST")]


def _photographs_folder(root: Path) -> Path:
    """Return BSDS500 below the root, or where its archive unpacks itself."""
    unpacked = root / "BSR" / "BSDS500"
    return unpacked if unpacked.is_dir() else root / "BSDS500"


def photographs_in(folder: Path) -> list[Path]:
    """Find the photographs in a folder, or in BSDS500 as its archive unpacks."""
    photographs = sorted(folder.glob("*.jpg")) or sorted(folder.glob("data/images/train/*.jpg"))
    if not photographs:
        raise DataError(f"no photographs *.jpg in {folder}; expected {LAYOUT}")
    return photographs


def blended(part: Part, photographs: list[Path]) -> Part:
    """Make MNIST-M of MNIST: |patch - digit| for each channel, with a random patch of a photograph.
    Which one it is depends on the digit's name alone."""
    states = "\n".join(f"{file.name} {file_state(file)}" for file in photographs)
    state = f"{part.state} {hashlib.blake2b(states.encode(), digest_size=8).hexdigest()}"
    part_name = part.name.removeprefix("mnist/")
    decoded: dict[Path, np.ndarray] = {}  # when first asked for; two threads may do the same work

    def pixels(row: int) -> np.ndarray:
        digit = np.repeat(part.read(row)[..., None], 3, axis=2)
        draws = hashlib.blake2b(f"{part_name}/{row:05d}".encode(), digest_size=24).digest()
        which, down, right = (int(number) for number in np.frombuffer(draws, ">u8"))
        file = photographs[which % len(photographs)]
        if file not in decoded:
            decoded[file] = np.asarray(open_image(file, str(file)))
        (height, width, _), (outer_height, outer_width, _) = digit.shape, decoded[file].shape
        if outer_height < height or outer_width < width:
            raise DataError(f"{file} is smaller than a digit; remove it")
        top, left = down % (outer_height - height + 1), right % (outer_width - width + 1)
        patch = decoded[file][top : top + height, left : left + width]
        return np.maximum(patch, digit) - np.minimum(patch, digit)

    name = f"mnist_m/{part_name}"
    return part._replace(name=name, domain="mnist_m", state=state, read=pixels)
