"""Answers as JSON, and their form for the description of the interface."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from unseen.forecast.disagreement import disagreement
from unseen.service.batching import Row
from unseen.service.decoding import Picture
from unseen.service.drift.strangeness import Strangeness
from unseen.serving.predictor import Predictor

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
