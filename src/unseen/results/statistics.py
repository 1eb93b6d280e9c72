"""All rules that judge an adapted model without a label of the target domain. No torch."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

import numpy as np

from unseen.results.files import Array

CONFIDENCE = 0.95
_Key = TypeVar("_Key", bound=Hashable)


class Estimate(NamedTuple):
    """A mean over `n` seeds and the half width of its interval (None: one seed shows no spread)."""

    mean: float
    half_width: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and 95 % t-interval; None where there are no values."""
    if not values:
        return None
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    return Estimate(fmean(values), _t_quantile(n - 1) * stdev(values) / math.sqrt(n), n)


def paired_difference(first: Mapping[_Key, float], second: Mapping[_Key, float]) -> Estimate | None:
    """`second` minus `first` over the seeds (or domains) that both have; None if they share none.

    Pairing takes out what a seed does to both, so the interval is the one that tells methods apart.
    """
    return estimate([second[key] - first[key] for key in first if key in second])


def macro_mean(by_domain: Mapping[str, float], domains: Iterable[str]) -> float | None:
    """Mean in which every domain counts the same, however many images it has.

    None if a domain has no number: a mean over fewer domains would be another quantity.
    """
    values = [by_domain.get(domain, math.nan) for domain in domains]
    if not values or not all(math.isfinite(value) for value in values):
        return None
    return fmean(values)


def evenly(rows: Array, most: int) -> Array:
    """At most so many of the rows, evenly spaced from the first to the last."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


def worst_domain(by_domain: Mapping[str, float]) -> tuple[str, float]:
    """Name and value of the lowest domain, the first of equal ones."""
    name = min(by_domain, key=by_domain.__getitem__)
    return name, by_domain[name]


def _t_quantile(degrees_of_freedom: int) -> float:
    """Two-sided Student quantile. scipy.special has it at a third of scipy.stats' import time."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))


COLDEST, HOTTEST = 0.2, 20.0
"""What lies beyond is a sign of too few images. From probabilities at the coldest, those at
temperature 1 can still be told to six digits."""
_NEWTON_STEPS = 100


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
    for _ in range(_NEWTON_STEPS):
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


def information_maximisation(chances: Array) -> float:
    """H(mean p) − mean H(p) of predictions `[images, classes]`: from 0 to log(classes)."""
    return float(entropy(chances.mean(axis=0)) - entropy(chances).mean())


def entropy(chances: Array) -> Array:
    """The entropy of probabilities along the last axis, in nats."""
    return -(chances * np.log(np.where(chances > 0, chances, 1.0))).sum(axis=-1)


TEMPERATURE = 0.05
"""τ of the paper."""


def neighbourhood_density(chances: Array) -> float:
    """The mean entropy of each image's similarities to the others, as a distribution: high where
    many others are as near. Similarity is the cosine between predictions `[images, classes]`."""
    directions = chances / np.linalg.norm(chances, axis=1, keepdims=True)
    likeness = directions @ directions.T / TEMPERATURE
    np.fill_diagonal(likeness, -np.inf)  # an image is no neighbour of its own
    likeness -= likeness.max(axis=1, keepdims=True)
    logs = likeness - np.log(np.exp(likeness).sum(axis=1, keepdims=True))
    np.fill_diagonal(logs, 0.0)
    shares = np.exp(logs)
    np.fill_diagonal(shares, 0.0)
    return float(-(shares * logs).sum(axis=1).mean())


def nuclear_norm(chances: Array) -> float:
    """Sum of the singular values of predictions `[images, classes]`, divided by the most it can be:
    1 where all answers are certain and all classes as frequent."""
    images, classes = chances.shape
    singular = np.linalg.svd(chances, compute_uv=False)
    return float(singular.sum() / np.sqrt(images * min(images, classes)))


_PENALTY = 1.0
_STEPS = 50


def validation_risk(features: Array, losses: Array, target: Array) -> float:
    """The loss to expect on the target: `features` and `losses` of source validation images,
    features of `target` images."""
    weights = np.empty(len(losses))
    for half in (0, 1):
        weights[half::2] = density_ratio(features[1 - half :: 2], target, features[half::2])
    return weighted_risk(weights, losses)


def weighted_risk(weights: Array, losses: Array) -> float:
    """The mean of weight × loss, with the weights as a control variate: their mean is known to be
    1, and what it deviates from that is taken out."""
    weighted = weights * losses
    spread = weights.var()
    if spread == 0:
        return float(weighted.mean())
    slope = -((weighted - weighted.mean()) * (weights - weights.mean())).mean() / spread
    return float(weighted.mean() + slope * weights.mean() - slope)


def density_ratio(source: Array, target: Array, at: Array) -> Array:
    """How much more frequent features like those `at` hand are in the target than in the source."""
    both = np.concatenate([source, target]).astype(np.float64)
    centre, scale = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-12)
    is_target = np.repeat([0.0, 1.0], [len(source), len(target)])
    weights = _logistic_regression(_with_one((both - centre) / scale), is_target)
    odds = np.exp(np.clip(_with_one((at - centre) / scale) @ weights, -30, 30))
    return odds * len(source) / len(target)


def _with_one(values: Array) -> Array:
    return np.concatenate([values, np.ones((len(values), 1))], axis=1)


def _logistic_regression(values: Array, labels: Array) -> Array:
    """Newton's method, in steps that never make it worse; the last weight is the constant, which
    alone is not kept small."""
    penalty = np.full(values.shape[1], _PENALTY)
    penalty[-1] = 0.0

    def objective(weights: Array) -> float:
        scores = values @ weights
        loss = np.logaddexp(0, scores) - labels * scores
        return float(loss.sum() + (penalty * weights**2).sum() / 2)

    weights = np.zeros(values.shape[1])
    best = objective(weights)
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(values @ weights, -30, 30)))
        slope = values.T @ (chances - labels) + penalty * weights
        bend = (values.T * (chances * (1 - chances))) @ values + np.diag(penalty + 1e-9)
        step = np.linalg.solve(bend, slope)
        while (found := objective(weights - step)) > best and np.abs(step).max() > 1e-9:
            step /= 2
        if best - found <= 1e-9 * best:
            break
        weights, best = weights - step, found
    return weights


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
