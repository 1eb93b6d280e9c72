"""The mathematics of results: intervals, means over domains, probabilities, temperature, and the
rules that judge an adapted model without a label of the target domain. No torch."""

# scipy and scikit-learn have no types, and are imported where they are used: reading results is
# quicker without them
# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar, cast

import numpy as np

from unseen.results.files import Array

CONFIDENCE = 0.95
"""The level of all intervals."""
_Key = TypeVar("_Key", bound=Hashable)


class Estimate(NamedTuple):
    """The mean over `n` seeds and the half width of its interval (None: one seed shows no
    spread)."""

    mean: float
    half_width: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Returns the mean and its 95 % t-interval; None where there are no values."""
    if not values:
        return None
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    from scipy.special import stdtrit  # at a third of the import time of scipy.stats

    quantile = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    return Estimate(fmean(values), quantile * stdev(values) / math.sqrt(n), n)


def paired_difference(first: Mapping[_Key, float], second: Mapping[_Key, float]) -> Estimate | None:
    """Returns `second` minus `first` over the seeds (or domains) that both have; None if they share
    none.

    Pairing takes out what a seed does to both, so the interval is the one that tells methods apart.
    """
    return estimate([second[key] - first[key] for key in first if key in second])


def above_zero(value: Estimate | None) -> bool:
    """Returns whether a value is beyond noise: its whole interval lies above zero. A single seed,
    which has no interval, cannot tell."""
    return value is not None and value.half_width is not None and value.mean > value.half_width


def macro_mean(by_domain: Mapping[str, float], domains: Iterable[str]) -> float | None:
    """Returns the mean in which every domain counts the same, however many images it has.

    None if a domain has no number: a mean over fewer domains would be another quantity.
    """
    values = [by_domain.get(domain, math.nan) for domain in domains]
    if not values or not all(math.isfinite(value) for value in values):
        return None
    return fmean(values)


def worst_domain(by_domain: Mapping[str, float]) -> tuple[str, float]:
    """Returns name and value of the lowest domain, the first of equal ones."""
    name = min(by_domain, key=by_domain.__getitem__)
    return name, by_domain[name]


def evenly(rows: Array, most: int) -> Array:
    """Returns at most so many of the rows, evenly spaced, the first and the last among them."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


def log_softmax(scores: Array) -> Array:
    """Returns logarithms of probabilities over the last dimension, in double precision."""
    scores = scores.astype(np.float64)
    scores = scores - scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


def softmax(scores: Array) -> Array:
    """Returns probabilities over the last dimension, in the precision of the scores."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def entropy(probs: Array) -> Array:
    """Returns −Σ p log p over the last dimension."""
    return -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=-1)


COLDEST, HOTTEST = 0.2, 20.0
"""What lies beyond is a sign of too few images. From probabilities at the coldest, those at
temperature 1 can still be told to six digits."""


def fit_temperature(scores: Sequence[Array], labels: Sequence[Array]) -> float | None:
    """Returns the temperature at which the true classes are most likely, every domain weighing
    equally.

    Given are scores `[images, classes]` and labels of each domain. None without a wrong answer:
    then the likelihood only grows as confidence does.
    """
    from scipy.optimize import brentq

    domains = [(s.astype(np.float64), y) for s, y in zip(scores, labels, strict=True) if len(y)]
    if not any((s.argmax(axis=1) != y).any() for s, y in domains):
        return None

    def slope(inverse: float) -> float:
        """Returns the slope of the negative log-likelihood, which is convex, by the inverse of the
        temperature: the expected score under the model less that of the true class."""
        return fmean(
            ((softmax(inverse * s) * s).sum(axis=1) - s[np.arange(len(y)), y]).mean()
            for s, y in domains
        )

    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(low) >= 0:
        return HOTTEST
    if slope(high) <= 0:
        return COLDEST
    inverse = cast(float, brentq(slope, low, high, xtol=1e-12, rtol=np.float64(1e-12)))
    return float(f"{1 / inverse:.6g}")


def information_maximisation(probs: Array) -> float:
    """Returns H(mean p) − mean H(p) of predictions `[images, classes]`: from 0 to log(classes)."""
    return float(entropy(probs.mean(axis=0)) - entropy(probs).mean())


TEMPERATURE = 0.05
"""τ of the paper on soft neighbourhood density."""


def neighbourhood_density(probs: Array) -> float:
    """Returns the mean entropy of each image's similarities to the others, as a distribution: high
    where many are as near. Similarity is the cosine between predictions `[images, classes]`."""
    directions = probs / np.linalg.norm(probs, axis=1, keepdims=True)
    likeness = directions @ directions.T / TEMPERATURE
    np.fill_diagonal(likeness, -np.inf)  # an image is no neighbour of its own
    return float(entropy(softmax(likeness)).mean())


def nuclear_norm(probs: Array) -> float:
    """Returns the sum of the singular values of predictions `[images, classes]`, divided by the
    most it can be: 1 where all answers are certain and all classes as frequent."""
    images, classes = probs.shape
    singular = np.linalg.svd(probs, compute_uv=False)
    return float(singular.sum() / np.sqrt(images * min(images, classes)))


def validation_risk(features: Array, losses: Array, target: Array) -> float:
    """Returns the loss to expect on the target: `features` and `losses` of source validation
    images, features of `target` images."""
    weights = np.empty(len(losses))
    for half in (0, 1):
        weights[half::2] = density_ratio(features[1 - half :: 2], target, features[half::2])
    return weighted_risk(weights, losses)


def weighted_risk(weights: Array, losses: Array) -> float:
    """Returns the mean of weight × loss, with the weights as a control variate: their mean is known
    to be 1, and what it deviates from that is taken out."""
    weighted = weights * losses
    spread = weights.var()
    if spread == 0:
        return float(weighted.mean())
    slope = -((weighted - weighted.mean()) * (weights - weights.mean())).mean() / spread
    return float(weighted.mean() + slope * weights.mean() - slope)


def density_ratio(source: Array, target: Array, at: Array) -> Array:
    """Returns how much more frequent features like those `at` hand are in the target than in the
    source, by a logistic regression that tells the two apart."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = np.concatenate([source, target]).astype(np.float64)
    is_target = np.repeat([0, 1], [len(source), len(target)])
    regression = LogisticRegression(solver="newton-cholesky", tol=1e-6)
    model = make_pipeline(StandardScaler(), regression).fit(rows, is_target)
    odds = np.exp(np.clip(model.decision_function(at.astype(np.float64)), -30, 30))
    return odds * len(source) / len(target)


Observed = tuple[Array, Array]
"""A model's raw class scores for some images, `[images, classes]`, and what its classifier sees of
them, `[images, width]`."""


def judge(target: Observed, source: Observed, labels: Array) -> dict[str, float]:
    """Returns a value for each selection rule, the higher the better. `source` are validation
    images, which alone have labels."""
    (target_scores, target_features), (source_scores, source_features) = target, source
    probs = np.exp(log_softmax(target_scores))
    losses = -log_softmax(source_scores)[np.arange(len(labels)), labels]
    return {
        "infomax": information_maximisation(probs),
        "snd": neighbourhood_density(probs),
        "bnm": nuclear_norm(probs),
        "dev": -validation_risk(source_features, losses, target_features),
    }
