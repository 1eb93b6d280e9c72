"""Information maximisation: answers that are sure, of all classes.

Bridle et al., Unsupervised Classifiers, Mutual Information and Phantom Targets (1991); as a rule
that chooses among adapted models in Musgrave et al., Unsupervised Domain Adaptation: A Reality
Check (2021). No torch.
"""

import numpy as np

from unseen.records.arrays import Array


def information_maximisation(chances: Array) -> float:
    """H(mean p) − mean H(p) of predictions `[images, classes]`: from 0 to log(classes)."""
    return float(_entropy(chances.mean(axis=0)) - _entropy(chances).mean())


def _entropy(chances: Array) -> Array:
    return -(chances * np.log(np.where(chances > 0, chances, 1.0))).sum(axis=-1)
