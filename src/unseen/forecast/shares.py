"""How often a model answers with each class, and how often it occurred in training. No torch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unseen.forecast.profile import Observed, Profile

SHIFTED_SHARES = 0.2
"""Total variation between class shares from which they count as shifted."""


class ClassShare(NamedTuple):
    name: str
    predicted: float
    """How often the model answers with it."""
    training: float
    """How often it occurs among validation images."""


def class_shares(profile: Profile, observed: Observed) -> tuple[ClassShare, ...]:
    called = np.bincount(observed.scores.argmax(axis=1), minlength=len(profile.classes))
    predicted = called / len(observed.scores)
    rows = zip(profile.classes, predicted.tolist(), profile.label_shares.tolist(), strict=True)
    return tuple(ClassShare(*row) for row in rows)


def share_shift(shares: Sequence[ClassShare]) -> float:
    """Total variation between predicted and training shares: 0 the same, 1 nothing in common."""
    return sum(abs(each.predicted - each.training) for each in shares) / 2
