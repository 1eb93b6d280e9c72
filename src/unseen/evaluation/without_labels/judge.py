"""All rules that judge an adapted model without a label of the target domain. No torch."""

from typing import NamedTuple

import numpy as np

from unseen.evaluation.without_labels.importance_weighting import validation_risk
from unseen.evaluation.without_labels.information_maximisation import information_maximisation
from unseen.evaluation.without_labels.neighbourhood_density import neighbourhood_density
from unseen.evaluation.without_labels.nuclear_norm import nuclear_norm
from unseen.records.arrays import Array


class Observed(NamedTuple):
    """What a model makes of some images."""

    scores: Array
    """Raw class scores, `[images, classes]`."""
    features: Array
    """What its classifier sees, `[images, width]`."""


def judge(target: Observed, source: Observed, labels: Array) -> dict[str, float]:
    """By selection rule, the higher the better. `source` are validation images, which alone have
    labels."""
    chances = np.exp(_logarithms(target.scores))
    losses = -_logarithms(source.scores)[np.arange(len(labels)), labels]
    return {
        "infomax": information_maximisation(chances),
        "snd": neighbourhood_density(chances),
        "bnm": nuclear_norm(chances),
        "dev": -validation_risk(source.features, losses, target.features),
    }


def _logarithms(scores: Array) -> Array:
    scores = scores.astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
