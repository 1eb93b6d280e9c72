"""What a model knows of its validation images, so that forecasts work without the images.

`profile.npz` in a run folder or beside saved weights; named arrays and no pickles. No torch.
"""

import base64
import binascii
import io
import zipfile
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.errors import UnseenError
from unseen.forecast.image_statistics import STATISTICS
from unseen.records.arrays import array_bytes, write_arrays

VERSION = 1
"""Of the file; raised when the same model and images would give other numbers."""
_TEXT_LIMIT = 400_000
"""Characters of a profile that travels inside another file."""

_MOST_BYTES = 2**28
"""Of a profile when it is unpacked."""


class Observed(NamedTuple):
    """What a model makes of some images, of which no label is known."""

    scores: np.ndarray
    """`[images, classes]`, raw: logits, or logarithms of uncalibrated probabilities."""
    disagreement: np.ndarray | None = None
    """`[images]`, of the training domains' opinions; None where a model has none."""
    statistics: np.ndarray | None = None
    """`[images, statistics]`, see `STATISTICS`."""
    features: np.ndarray | None = None
    """`[images, dimensions]`, pooled and projected; None where a model file gives none."""


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
        """On all validation images together."""
        return float((self.scores.argmax(axis=1) == self.label).mean())

    @property
    def label_shares(self) -> np.ndarray:
        """How often each class occurs among the validation images."""
        return np.bincount(self.label, minlength=len(self.classes)) / len(self)

    @property
    def described_domain(self) -> np.ndarray:
        """The domain of each row of `statistics` and `features`."""
        return self.domain[self.described]

    def write(self, path: Path) -> None:
        """Equal profiles make equal files."""
        write_arrays(path, self._arrays(), compress=True)

    @classmethod
    def read(cls, path: Path) -> "Profile":
        """Checked, since a model may come from anywhere."""
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise UnseenError(f"there is no profile {path}") from error
        return cls._from_bytes(content, str(path))

    def to_text(self, limit: int = _TEXT_LIMIT) -> str:
        """For the metadata of another file; of evenly fewer images where it would be longer."""
        kept = self
        while True:
            text = base64.b64encode(array_bytes(kept._arrays(), compress=True)).decode()
            if len(text) <= limit or len(kept) <= len(self.domains):
                return text
            kept = kept._every_second()

    @classmethod
    def from_text(cls, text: str, where: str) -> "Profile":
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise UnseenError(f"{where} is damaged: its profile is not base64") from error
        return cls._from_bytes(content, where)

    def _every_second(self) -> "Profile":
        """Of each domain."""
        kept = np.concatenate(
            [np.flatnonzero(self.domain == number)[::2] for number in range(len(self.domains))]
        )
        described = np.flatnonzero(np.isin(self.described, kept))
        places = np.searchsorted(kept, self.described[described])
        return replace(
            self,
            domain=self.domain[kept],
            label=self.label[kept],
            scores=self.scores[kept],
            disagreement=None if self.disagreement is None else self.disagreement[kept],
            described=places,
            statistics=self.statistics[described],
            features=None if self.features is None else self.features[described],
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        kinds = {"domain": np.int16, "label": np.int32, "described": np.int32}
        arrays = {
            "version": np.array(VERSION),
            "statistic_names": np.array(STATISTICS),
            "classes": np.array(self.classes),
            "domains": np.array(self.domains),
        }
        for name in ("domain", "label", "scores", "disagreement", "described", *_MEASURED):
            values = getattr(self, name)
            if values is not None:
                arrays[name] = np.asarray(values, dtype=kinds.get(name, np.float32))
        return arrays

    @classmethod
    def _from_bytes(cls, content: bytes, where: str) -> "Profile":
        found = _load(content, where)
        version, statistics = (found.pop(key, None) for key in ("version", "statistic_names"))
        if not (np.array_equal(version, [VERSION]) and np.array_equal(statistics, STATISTICS)):
            raise UnseenError(
                f"the profile in {where} is damaged or of another version of unseen; remove it, "
                "and it is made again from the run's images"
            )
        required = {each.name for each in fields(cls)} - _OPTIONAL
        if not required <= found.keys() <= required | _OPTIONAL:
            raise UnseenError(f"{where} is damaged: its profile is not complete")
        names: dict[str, Any] = {
            key: tuple(map(str, found.pop(key).ravel())) for key in ("classes", "domains")
        }
        names |= dict.fromkeys(_OPTIONAL - found.keys())
        profile = cls(**names, **found)
        if not profile._is_consistent():
            raise UnseenError(f"{where} is damaged: the arrays of its profile do not fit together")
        return profile

    def _is_consistent(self) -> bool:
        n, described = self.label.shape[0] if self.label.ndim else 0, self.described
        whole = (self.domain, self.label, described)
        shapes = [
            (self.domain, (n,)),
            (self.label, (n,)),
            (self.scores, (n, len(self.classes))),
            (self.disagreement, (n,)),
            (described, (len(described) if described.ndim else -1,)),
            (self.statistics, (len(described) if described.ndim else -1, len(STATISTICS))),
        ]
        return (
            n > 0
            and all(array is None or array.shape == shape for array, shape in shapes)
            and all(array.dtype.kind == "i" for array in whole)
            and all(
                len(array) == 0 or (array.min() >= 0 and array.max() < most)
                for array, most in zip(
                    whole, (len(self.domains), len(self.classes), n), strict=True
                )
            )
            and (self.features is None or self.features.shape[:-1] == described.shape)
            and all(
                array is None or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))
                for array in (self.scores, self.disagreement, self.features)
            )
        )


def _load(content: bytes, where: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError("too large")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        MemoryError,
        zlib.error,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        raise UnseenError(f"{where} is damaged: its profile cannot be read ({error})") from error


_MEASURED = ("statistics", "features")
_OPTIONAL = {"disagreement", "features"}
