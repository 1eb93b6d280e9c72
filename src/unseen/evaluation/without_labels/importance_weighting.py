"""DEV, deep embedded validation: the source validation loss, each image counting by how much it
looks like one of the target domain.

You et al., Towards Accurate Model Selection in Deep Unsupervised Domain Adaptation (ICML 2019),
equations 5 to 9. The density ratio comes from a logistic regression that tells target features from
those of source validation images; each half of these is weighed by what the other half taught,
where the paper fits it to training images. No torch.
"""

import numpy as np

from unseen.records.arrays import Array

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
