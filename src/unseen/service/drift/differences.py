"""How far images of today lie from validation images, measure by measure.

The difference of a measure is the Kolmogorov-Smirnov distance of its values then and now, and that
of the predicted classes the total variation distance of their shares: both are 0 where nothing
changed and 1 where nothing is as it was. For two bell curves of the same width, 0.2 is a shift by
half a standard deviation, 0.4 one by a whole.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from unseen.forecast.image_statistics import MEANINGS
from unseen.service.drift.observations import Observations

Level = Literal["too few images", "as in training", "somewhat different", "very different"]
LEVELS: tuple[Level, ...] = (
    "too few images",
    "as in training",
    "somewhat different",
    "very different",
)
FEWEST = 50
"""Images that are needed for a level."""
SOMEWHAT, VERY = 0.2, 0.4
CHANCE = 0.01
"""Of any measure looking different where nothing changed."""
PREDICTED = "predicted classes"
OF_THE_MODEL = {
    "confidence": "probability of the predicted class",
    "disagreement": "how far the training domains' opinions lie apart, before calibration",
    PREDICTED: "share of images whose class would have to change to get the shares of validation",
}


class Difference(NamedTuple):
    """One measure: means then and now, how far apart, and how far by chance."""

    measure: str
    about: str
    reference: float | None
    now: float | None
    difference: float
    by_chance: float
    level: Level


class Comparison(NamedTuple):
    """All measures against one set of validation images."""

    compared_with: str
    level: Level
    differences: tuple[Difference, ...]

    @property
    def size(self) -> float:
        return float(np.mean([each.difference for each in self.differences]))


def compare(now: Observations, references: Mapping[str, Observations]) -> Comparison:
    """With the validation images that are most like those of now: images may all come from one of
    the training domains, and nothing is wrong with that."""
    found = (_compare(now, reference, name) for name, reference in references.items())
    return min(found, key=lambda comparison: comparison.size)


def _compare(now: Observations, reference: Observations, name: str) -> Comparison:
    then = dict(reference.measures())
    pairs = [
        (measure, then[measure], values)
        for measure, values in now.measures()
        if measure in then and len(then[measure]) and len(values)
    ]
    chance = CHANCE / (len(pairs) + 1)
    differences = tuple(_of_values(*pair, chance) for pair in pairs)
    predicted = _of_shares(reference, now, chance)
    everything = (*differences[:2], predicted, *differences[2:])
    return Comparison(name, _overall(everything, len(now.scores)), everything)


def _of_values(measure: str, then: np.ndarray, now: np.ndarray, chance: float) -> Difference:
    size = distance(then, now)
    by_chance = math.sqrt(-math.log(chance / 2) / 2 * (1 / len(then) + 1 / len(now)))
    about = OF_THE_MODEL.get(measure) or MEANINGS[measure]
    level = _level(size, by_chance, len(now))
    return Difference(measure, about, float(then.mean()), float(now.mean()), size, by_chance, level)


def distance(then: np.ndarray, now: np.ndarray) -> float:
    """Largest difference between the shares of values up to any number (Kolmogorov-Smirnov)."""
    then, now = np.sort(then), np.sort(now)
    places = np.concatenate([then, now])
    shares = (np.searchsorted(each, places, "right") / len(each) for each in (then, now))
    return float(np.abs(next(shares) - next(shares)).max())


def _of_shares(then: Observations, now: Observations, chance: float) -> Difference:
    before, after = then.predicted_shares(), now.predicted_shares()
    size = float(np.abs(before - after).sum() / 2)
    several = 1 / len(then.scores) + 1 / max(1, len(now.scores))
    spread = np.sqrt(2 / math.pi * before * (1 - before) * several).sum() / 2
    by_chance = float(spread) + math.sqrt(-math.log(chance) / 2 * several)
    level = _level(size, by_chance, len(now.scores))
    return Difference(PREDICTED, OF_THE_MODEL[PREDICTED], None, None, size, by_chance, level)


def _level(size: float, by_chance: float, images: int) -> Level:
    if images < FEWEST:
        return "too few images"
    if size < SOMEWHAT or size <= by_chance:
        return "as in training"
    return "somewhat different" if size < VERY else "very different"


def _overall(differences: tuple[Difference, ...], images: int) -> Level:
    """The worst one, but a single statistic of the pictures is at most somewhat different: another
    camera or file format is not another world."""
    if images < FEWEST:
        return "too few images"
    very = [each for each in differences if each.level == "very different"]
    if len(very) > 1 or any(each.measure in OF_THE_MODEL for each in very):
        return "very different"
    somewhat = any(each.level == "somewhat different" for each in differences)
    return "somewhat different" if very or somewhat else "as in training"
