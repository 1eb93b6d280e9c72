"""Temperature scaling: one number that class scores are divided by, so that confidence is honest.

Guo et al., On Calibration of Modern Neural Networks (2017), section 4.2. No torch.
"""

from collections.abc import Sequence

import numpy as np

from unseen.records.arrays import Array

COLDEST, HOTTEST = 0.2, 20.0
"""What lies beyond is a sign of too few images. From probabilities at the coldest, those at
temperature 1 can still be told to six digits."""
_STEPS = 100


def fit_temperature(scores: Sequence[Array], labels: Sequence[Array]) -> float | None:
    """The temperature at which the true classes are most likely, every domain weighing the same.

    Given are scores `[images, classes]` and labels of each domain. None without a wrong answer:
    then the likelihood only grows as confidence does.
    """
    kept = [(s, y) for s, y in zip(scores, labels, strict=True) if len(y)]
    if not any((s.argmax(axis=1) != y).any() for s, y in kept):
        return None
    domains = [_Domain(s, y) for s, y in kept]
    low, high = 1 / HOTTEST, 1 / COLDEST
    inverse = 1.0
    for _ in range(_STEPS):
        slope, curvature = np.mean([domain.slope(inverse) for domain in domains], axis=0)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        newton = inverse - slope / curvature if curvature > 0 else low
        following = newton if low < newton < high else (low + high) / 2
        if abs(following - inverse) <= 1e-12 * inverse:
            break
        inverse = following
    return float(f"{1 / inverse:.6g}")


class _Domain:
    """The mean negative log-likelihood of a domain's images, as a convex function of the inverse
    temperature."""

    def __init__(self, scores: Array, labels: Array) -> None:
        scores = scores.astype(np.float64)
        self._scores = scores - scores.max(axis=1, keepdims=True)
        self._true = self._scores[np.arange(len(labels)), labels].mean()

    def slope(self, inverse: float) -> tuple[float, float]:
        """First and second derivative: expected score under the model less the true class's, and
        the variance of scores under the model."""
        weights = np.exp(inverse * self._scores)
        chances = weights / weights.sum(axis=1, keepdims=True)
        expected = (chances * self._scores).sum(axis=1)
        squared = (chances * self._scores**2).sum(axis=1)
        return float(expected.mean() - self._true), float((squared - expected**2).mean())
