"""Keeps images and answers in a folder, where that was asked for: the newest ones, up to a size."""

import itertools
import json
import logging
import re
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.forecast.profile import disagreement
from unseen.serve.batching import Row
from unseen.serve.drift import Strangeness
from unseen.serve.predictor import Predictor
from unseen.serve.requests import Picture

DIGITS = 7
Probabilities = dict[str, float]


class Problem(BaseModel):
    """Why a request was refused, and what to do about it."""

    problem: str


class ImageAnswer(BaseModel):
    """What the model says about one image, or why it says nothing."""

    image: str = Field(description="file name as it was sent, or 'image 1', 'image 2', ...")
    predicted: str | None = Field(None, alias="class", description="the most likely class")
    confidence: float | None = Field(None, description="probability of that class")
    probabilities: Probabilities | None = Field(None, description="probability of every class")
    opinions: dict[str, Probabilities] | None = Field(
        None, description="probabilities as if the image came from each training domain"
    )
    disagreement: float | None = Field(
        None, description="how far the opinions lie apart, from 0 to 1"
    )
    strangeness: float | None = Field(
        None, description="share of the validation images that look less strange, from 0 to 1"
    )
    closest_domain: str | None = Field(
        None, description="training domain whose pictures look most like this one"
    )
    most_unusual: str | None = Field(
        None, description="what can be measured on the picture and is the least like there"
    )
    problem: str | None = Field(None, description="why this image has no answer")


class Answers(BaseModel):
    """One entry for each image, in the order in which they were sent."""

    images: list[ImageAnswer]
    calibrated: bool = Field(description="whether a temperature was fitted on validation images")
    temperature: float = Field(description="scores are divided by it before the softmax")


class ModelFacts(BaseModel):
    """What the model is."""

    name: str
    classes: list[str]
    domains: list[str] = Field(description="the domains it was trained on")
    image_size: int
    has_opinions: bool
    calibrated: bool
    temperature: float
    card: str | None = Field(description="the model card, as Markdown")
    limits: dict[str, float]
    keeps_images: bool = Field(description="whether images and answers are stored")


class Health(BaseModel):
    """The service answers; `waiting` images are in work."""

    status: str
    waiting: int


def image_answer(
    predictor: Predictor, picture: Picture, row: Row | None, strange: Strangeness | None
) -> dict[str, Any]:
    """An entry of the answer, as plain data."""
    if row is None:
        return {"image": picture.upload.name, "problem": picture.problem}
    best = int(row.probabilities.argmax())
    found: dict[str, Any] = {
        "image": picture.upload.name,
        "class": predictor.classes[best],
        "confidence": round(float(row.probabilities[best]), DIGITS),
        "probabilities": _by_class(predictor, row.probabilities),
    }
    if row.opinions is not None:
        each = (_by_class(predictor, opinion) for opinion in row.opinions)
        found["opinions"] = dict(zip(predictor.domains, each, strict=True))
        found["disagreement"] = round(abs(float(disagreement(row.opinions))), DIGITS)
    if strange is not None:
        found["strangeness"] = round(strange.share, DIGITS)
        found["closest_domain"] = strange.closest_domain
        found["most_unusual"] = strange.most_unusual
    return found


def _by_class(predictor: Predictor, probabilities: np.ndarray) -> Probabilities:
    values = (round(float(value), DIGITS) for value in probabilities)
    return dict(zip(predictor.classes, values, strict=True))


def status_of(pictures: Sequence[Picture]) -> int:
    """200 where any image has an answer; else what all problems have in common, or 422."""
    statuses = {picture.status for picture in pictures}
    if 200 in statuses:
        return 200
    return statuses.pop() if len(statuses) == 1 else 422


def as_json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_NAME = re.compile(r"\d{8}T\d{12}Z-\d{6}")
_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_logger = logging.getLogger("unseen.service")


class _Kept(NamedTuple):
    files: tuple[Path, ...]
    bytes: int


class Keeper:
    """Names of files are made here: time and a number. What somebody calls a file is only in the
    answer. One thread at a time writes."""

    def __init__(self, folder: Path, most_images: int, most_bytes: int) -> None:
        self._folder, self._most_images, self._most_bytes = folder, most_images, most_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.stem))
        except OSError as error:
            raise UnseenError(f"images cannot be kept in {folder}: {error.strerror}") from error
        self._kept: deque[_Kept] = deque()
        for _, files in itertools.groupby(before, key=lambda path: path.stem):
            self._remember(tuple(files))
        self._numbers = itertools.count(1)
        self._trim()

    def keep(self, data: bytes, kind: str, answer: dict[str, Any]) -> None:
        """A full disk stops no answer."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        stem = f"{now}-{next(self._numbers) % 1_000_000:06d}"
        image = self._folder / f"{stem}{_ENDINGS.get(kind, f'.{kind.lower()}')}"
        text = self._folder / f"{stem}.json"
        try:
            for path, content in ((image, data), (text, as_json(answer))):
                with atomic_file(path) as temporary:
                    temporary.write_bytes(content)
            self._remember((image, text))
            self._trim()
        except OSError as error:
            _logger.warning("an image was not kept in %s: %s", self._folder, error)

    def _remember(self, files: tuple[Path, ...]) -> None:
        self._kept.append(_Kept(files, sum(path.stat().st_size for path in files)))

    def _trim(self) -> None:
        """The oldest go first."""
        total = sum(each.bytes for each in self._kept)
        while len(self._kept) > self._most_images or (self._kept and total > self._most_bytes):
            oldest = self._kept.popleft()
            total -= oldest.bytes
            for path in oldest.files:
                path.unlink(missing_ok=True)
