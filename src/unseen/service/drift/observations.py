"""What is known of images for the drift watch: of validation images, and of the last ones sent."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from unseen.forecast.disagreement import disagreement
from unseen.forecast.image_statistics import STATISTICS
from unseen.forecast.profile import Observed, Profile

ALL_DOMAINS = "all training domains"
FEWEST = 20
"""Validation images of a domain, for images to be compared with it alone."""


def raw_scores(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """The scores before they were divided by the temperature, but for a constant."""
    return temperature * np.log(np.maximum(probabilities, 1e-30))


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Observations(NamedTuple):
    """Some images: rows of the first arrays, and perhaps fewer of the last."""

    scores: np.ndarray
    disagreement: np.ndarray | None
    statistics: np.ndarray
    temperature: float

    def measures(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and values, without those that are not known."""
        yield "confidence", softmax(self.scores / self.temperature).max(axis=1)
        if self.disagreement is not None:
            yield "disagreement", self.disagreement
        for name, values in zip(STATISTICS, self.statistics.T, strict=True):
            yield name, values[np.isfinite(values)]

    def predicted_shares(self) -> np.ndarray:
        predicted = self.scores.argmax(axis=1)
        return np.bincount(predicted, minlength=self.scores.shape[1]) / max(1, len(predicted))

    def observed(self) -> Observed:
        """As forecasts take them."""
        return Observed(self.scores, self.disagreement, self.statistics)


def references(profile: Profile, temperature: float) -> dict[str, Observations]:
    """Validation images of all training domains, and of each that has enough of them."""

    def chosen(rows: np.ndarray, described: np.ndarray) -> Observations:
        apart = None if profile.disagreement is None else profile.disagreement[rows]
        statistics = profile.statistics[described]
        return Observations(profile.scores[rows], apart, statistics, temperature)

    found = {ALL_DOMAINS: chosen(np.arange(len(profile)), np.arange(len(profile.described)))}
    for number, name in enumerate(profile.domains):
        rows = np.flatnonzero(profile.domain == number)
        if len(rows) >= FEWEST:
            described = np.flatnonzero(profile.described_domain == number)
            found[name] = chosen(rows, described)
    return found


class Window:
    """The last images that were answered; never more of them than its length."""

    def __init__(self, length: int, n_classes: int, temperature: float) -> None:
        self.length, self._temperature = length, temperature
        self.total = 0
        self._scores = np.zeros((length, n_classes), dtype=np.float32)
        self._disagreement = np.full(length, np.nan, dtype=np.float32)
        self._statistics = np.full((length, len(STATISTICS)), np.nan, dtype=np.float32)

    def add(
        self, probabilities: np.ndarray, opinions: np.ndarray | None, statistics: np.ndarray
    ) -> None:
        place = self.total % self.length
        self._scores[place] = raw_scores(probabilities, self._temperature)
        if opinions is not None:
            raw = softmax(raw_scores(opinions, self._temperature))
            self._disagreement[place] = disagreement(raw)
        self._statistics[place] = statistics
        self.total += 1

    def copy(self) -> Observations:
        filled = min(self.total, self.length)
        apart = self._disagreement[:filled].copy()
        return Observations(
            self._scores[:filled].copy(),
            None if np.isnan(apart).any() else apart,
            self._statistics[:filled].copy(),
            self._temperature,
        )
