"""The outputs of a model for its validation images, so that forecasts work without the images.

`profile.npz` in a run folder or beside saved weights; named arrays and no pickles. No torch.
"""

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from unseen.errors import UnseenError
from unseen.results.files import array_bytes, write_arrays
from unseen.results.statistics import entropy

MEANINGS = {
    "width": "pixels of the file",
    "height": "pixels of the file",
    "brightness": "mean luminance, 0 to 1",
    "contrast": "standard deviation of luminance",
    "colourfulness": "spread and strength of the opponent colours (Hasler and Süsstrunk 2003)",
    "saturation": "mean distance of a pixel from gray, 0 to 1",
    "warmth": "mean red minus mean blue, -1 to 1",
    "sharpness": "logarithm (base 10) of the Laplacian's variance",
    "noise": "standard deviation of fine grain (Immerkær 1996, by the median)",
    "blockiness": "how much stronger edges are at every eighth pixel, as JPEG leaves them",
    "bytes per pixel": "size of the file over its pixels; unknown for images in memory",
}
"""The statistics of an image file, and the meaning of each number."""
STATISTICS = tuple(MEANINGS)
_LOOKED_AT = 256
"""Pixels of the longer side of the copy on which light and colour are measured."""
_CROP = 512
"""Pixels of the middle square on which grain and blocks are measured: those of the file itself."""
_BLOCK = 8
_LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def image_statistics(image: Image.Image, file_bytes: int | None) -> np.ndarray:
    """One float32 for each of `STATISTICS`, of an upright RGB image; NaN where one is not known."""
    small, middle, longest = image, image, max(image.size)
    if longest > _LOOKED_AT:
        width, height = (max(1, round(length * _LOOKED_AT / longest)) for length in image.size)
        small = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    if longest > _CROP:  # cut where blocks of eight begin
        left, top = (max(0, (length - _CROP) // 2) // _BLOCK * _BLOCK for length in image.size)
        right, lower = min(left + _CROP, image.width), min(top + _CROP, image.height)
        middle = image.crop((left, top, right, lower))
    red, green, blue = planes = _planes(small)
    gray = own = np.tensordot(_LUMINANCE, planes, axes=1)
    if small is not middle:
        own = np.tensordot(_LUMINANCE, _planes(middle), axes=1)
    red_green, yellow_blue = red - green, (red + green) / 2 - blue
    spread = np.hypot(red_green.std(), yellow_blue.std())
    laplacian = np.zeros(1, dtype=np.float32)
    if min(gray.shape) >= 3:
        neighbours = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:]
        laplacian = neighbours - 4 * gray[1:-1, 1:-1]
    values = (
        image.width,
        image.height,
        gray.mean(),
        gray.std(),
        spread + 0.3 * np.hypot(red_green.mean(), yellow_blue.mean()),
        (planes.max(axis=0) - planes.min(axis=0)).mean(),
        red.mean() - blue.mean(),
        np.log10(laplacian.var() + 1e-6),
        _noise(own),
        _blockiness(own),
        np.nan if file_bytes is None else file_bytes / (image.width * image.height),
    )
    return np.array(values, dtype=np.float32)


def _planes(image: Image.Image) -> np.ndarray:
    """float32 `[3, height, width]` from 0 to 1: numpy is quick on whole planes of a colour."""
    bands = image.convert("RGB").split()
    planes = np.stack([np.asarray(band) for band in bands]).astype(np.float32)
    planes /= 255
    return planes


def _noise(gray: np.ndarray) -> float:
    """The difference of two Laplacians is blind to edges that are straight; its response to grain
    of spread 1 has the spread 6, and the median of its size is 0.6745 of that."""
    if min(gray.shape) < 3:
        return 0.0
    rows = gray[:-2] - 2 * gray[1:-1] + gray[2:]
    sizes = np.abs(rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:]).ravel()
    middle = sizes.size // 2
    sizes.partition(middle)  # ten times as quick as np.median, which looks for two places at once
    lower = sizes[middle] if sizes.size % 2 else sizes[:middle].max()
    return float((sizes[middle] + lower) / 2 / (6 * 0.6745))


def _blockiness(gray: np.ndarray) -> float:
    """0 where steps at every eighth pixel are as large as elsewhere; at most 1."""
    shares: list[float] = []
    for steps in (np.abs(np.diff(gray, axis=1)).mean(axis=0), np.abs(np.diff(gray.T)).mean(axis=0)):
        border = np.arange(len(steps)) % _BLOCK == _BLOCK - 1
        if border.any() and not border.all():
            at, elsewhere = float(steps[border].mean()), float(steps[~border].mean())
            shares.append((at - elsewhere) / (at + elsewhere + 1e-4))
    return float(np.mean(shares)) if shares else 0.0


def disagreement(opinions: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence between probabilities `[..., domains, classes]`, from 0 (all the
    same) to 1 (as far apart as so many opinions on so many classes can be).

    H(mean of the opinions) - mean of H(opinion), divided by the most it can be: each domain certain
    of a class, and the classes as evenly chosen as possible.
    """
    opinions = np.asarray(opinions, dtype=np.float64)
    n_domains, n_classes = opinions.shape[-2:]
    apart = entropy(opinions.mean(axis=-2)) - entropy(opinions).mean(axis=-1)
    votes = np.bincount(np.arange(n_domains) % n_classes, minlength=n_classes)
    most = entropy(votes / n_domains)
    if most == 0:  # one domain, or one class
        return np.zeros_like(apart)
    return np.clip(apart / most, 0.0, 1.0)


DIMENSIONS = 64


def project(features: np.ndarray) -> np.ndarray:
    """float32 `[images, at most 64]`: sums with random signs (Achlioptas 2003), the same ones on
    every machine, so that the features of other images can be compared later."""
    width = features.shape[1]
    if width <= DIMENSIONS:
        return features.astype(np.float32)
    data = hashlib.shake_256(f"signs of {width}".encode()).digest(width * DIMENSIONS // 8)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8)).reshape(width, DIMENSIONS)
    signs = (2.0 * bits - 1.0) / np.sqrt(DIMENSIONS)
    return (features.astype(np.float64) @ signs).astype(np.float32)


VERSION = 1
"""The version of the file; raised when the same model and images would give other numbers."""
_MOST_BYTES = 2**28
"""The most bytes of a profile when it is unpacked."""
_INTEGERS = {"domain": np.int16, "label": np.int32, "described": np.int32}


class ModelOutputs(NamedTuple):
    """The outputs of a model for some images, of which no label is known."""

    scores: np.ndarray
    """`[images, classes]`, raw: logits, or logarithms of uncalibrated probabilities."""
    disagreement: np.ndarray | None = None
    """`[images]`, of the training domains' opinions; None where a model has none."""
    statistics: np.ndarray | None = None
    """`[images, statistics]`, see `STATISTICS`."""
    features: np.ndarray | None = None
    """`[images, dimensions]`, pooled and projected; None where a model file gives none."""

    @property
    def shares(self) -> np.ndarray:
        """The share of each class among the predictions."""
        images, classes = self.scores.shape
        return np.bincount(self.scores.argmax(axis=1), minlength=classes) / images


@dataclass(frozen=True)
class Profile:
    """Arrays with a row for each validation image, all training domains together."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    domain: np.ndarray
    """int, a position in `domains`."""
    label: np.ndarray
    """int, a position in `classes`."""
    scores: np.ndarray
    """`[images, classes]`, raw."""
    disagreement: np.ndarray | None
    described: np.ndarray
    """Which of the images the next two arrays are about: at most 200 of a domain."""
    statistics: np.ndarray
    """`[described, statistics]`, in the order of `STATISTICS`; NaN where one is not known."""
    features: np.ndarray | None
    """`[described, dimensions]`: the classifier's input, pooled and projected."""

    def __len__(self) -> int:
        return len(self.label)

    @property
    def accuracy(self) -> float:
        """The accuracy on all validation images together."""
        return float((self.scores.argmax(axis=1) == self.label).mean())

    @property
    def label_shares(self) -> np.ndarray:
        """The share of each class among the validation images."""
        return np.bincount(self.label, minlength=len(self.classes)) / len(self)

    @property
    def described_domain(self) -> np.ndarray:
        """The domain of each row of `statistics` and `features`."""
        return self.domain[self.described]

    def write(self, path: Path) -> None:
        """Write the file; equal profiles make equal files."""
        write_arrays(path, self._arrays(), compress=True)

    @classmethod
    def read(cls, path: Path) -> "Profile":
        """Read and check the file, since a model may come from anywhere."""
        if not path.is_file():
            raise UnseenError(f"there is no profile {path}")
        return cls._from_bytes(path.read_bytes(), str(path))

    def to_text(self) -> str:
        """Return text for the metadata of another file."""
        return base64.b64encode(array_bytes(self._arrays(), compress=True)).decode()

    @classmethod
    def from_text(cls, text: str, where: str) -> "Profile":
        try:
            return cls._from_bytes(base64.b64decode(text, validate=True), where)
        except ValueError as error:
            raise UnseenError(f"{where} is damaged: its profile is not base64") from error

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {
            "version": np.array(VERSION),
            "statistic_names": np.array(STATISTICS),
            "classes": np.array(self.classes),
            "domains": np.array(self.domains),
        }
        for each in fields(self)[2:]:
            values = getattr(self, each.name)
            if values is not None:
                kind = _INTEGERS.get(each.name, np.float32)
                arrays[each.name] = np.asarray(values, dtype=kind)
        return arrays

    @classmethod
    def _from_bytes(cls, content: bytes, where: str) -> "Profile":
        found: dict[str, Any] = {"disagreement": None, "features": None}
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                    raise ValueError("too large")
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                found |= {name: arrays[name] for name in arrays.files}
        except Exception as error:  # a damaged archive raises nearly anything
            message = f"{where} is damaged: its profile cannot be read ({error})"
            raise UnseenError(message) from error
        version, statistics = (found.pop(key, []) for key in ("version", "statistic_names"))
        if not (np.array_equal(version, [VERSION]) and np.array_equal(statistics, STATISTICS)):
            raise UnseenError(
                f"the profile in {where} is damaged or of another version of unseen; train, save "
                "or export the model again"
            )
        if found.keys() == {each.name for each in fields(cls)}:
            for key in ("classes", "domains"):
                found[key] = tuple(map(str, found[key].ravel()))
            profile = cls(**found)
            if profile._is_consistent():
                return profile
        raise UnseenError(f"{where} is damaged: the arrays of its profile do not fit together")

    def _is_consistent(self) -> bool:
        """Returns whether all arrays have the lengths, types and values that the others ask for."""
        n, described, classes = self.label.size, self.described.size, len(self.classes)
        positions = (self.domain, n, len(self.domains)), (self.label, n, classes)
        for array, length, limit in (*positions, (self.described, described, n)):
            if array.shape != (length,) or array.dtype.kind != "i":
                return False
            if not ((array >= 0) & (array < limit)).all():
                return False
        width = () if self.features is None else self.features.shape[-1:]
        known = np.nan_to_num(self.statistics) if self.statistics.dtype.kind == "f" else None
        numbers = (self.scores, (n, classes)), (self.disagreement, (n,))
        described = (self.features, (described, *width)), (known, (described, len(STATISTICS)))
        return (
            n > 0
            and known is not None
            and all(
                a is None or (a.shape == shape and a.dtype.kind == "f" and np.isfinite(a).all())
                for a, shape in (*numbers, *described)
            )
        )
