"""How far the opinions of several domains lie apart."""

import numpy as np


def disagreement(opinions: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence between probabilities `[..., domains, classes]`, from 0 (all the
    same) to 1 (as far apart as so many opinions on so many classes can be).

    H(mean of the opinions) - mean of H(opinion), divided by the most it can be: each domain certain
    of a class, and the classes as evenly chosen as possible.
    """
    opinions = np.asarray(opinions, dtype=np.float64)
    n_domains, n_classes = opinions.shape[-2:]
    apart = _entropy(opinions.mean(axis=-2)) - _entropy(opinions).mean(axis=-1)
    votes = np.bincount(np.arange(n_domains) % n_classes, minlength=n_classes)
    most = _entropy(votes / n_domains)
    if most == 0:  # one domain, or one class
        return np.zeros_like(apart)
    return np.clip(apart / most, 0.0, 1.0)


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    safe = np.where(probabilities > 0, probabilities, 1.0)
    return -(probabilities * np.log(safe)).sum(axis=-1)
