"""How good answers are, from a confusion matrix: rows are true classes, columns answers. No torch.

A class without images has no say in a mean over classes.
"""

from collections.abc import Callable

import numpy as np

from unseen.records.arrays import Array
from unseen.settings.metrics import Metric


def accuracy(confusion: Array) -> float:
    """Share of right answers; every image counts the same."""
    return int(confusion.trace()) / int(confusion.sum())


def recall(confusion: Array) -> Array:
    """Share of each class's images that were recognised; NaN for a class without images."""
    total = confusion.sum(axis=1)
    unknown = np.full(len(total), np.nan)
    return np.divide(confusion.diagonal(), total, out=unknown, where=total > 0)


def balanced_accuracy(confusion: Array) -> float:
    """Mean recall; every class counts the same, however few images it has."""
    return float(np.nanmean(recall(confusion)))


def macro_f1(confusion: Array) -> float:
    """Mean over classes of 2 · right / (images of the class + answers with it)."""
    images, answers = confusion.sum(axis=1), confusion.sum(axis=0)
    there = images > 0
    f1: Array = 2 * confusion.diagonal()[there] / (images + answers)[there]
    return float(f1.mean())


def largest_class_share(confusion: Array) -> float:
    """The accuracy of always answering with the class that has the most images."""
    return int(confusion.sum(axis=1).max()) / int(confusion.sum())


def always_largest(confusion: Array) -> Array:
    """The confusion of a model that always answers with the class that has the most images."""
    images = confusion.sum(axis=1)
    answers = np.zeros_like(confusion)
    answers[:, int(images.argmax())] = images
    return answers


MEASURES: dict[Metric, Callable[[Array], float]] = {
    "accuracy": accuracy,
    "balanced": balanced_accuracy,
    "macro_f1": macro_f1,
}


def _of_always_largest(formula: Callable[[Array], float]) -> Callable[[Array], float]:
    return lambda confusion: formula(always_largest(confusion))


ALWAYS_LARGEST = {metric: _of_always_largest(formula) for metric, formula in MEASURES.items()}
"""What a model gets that looks at no image and answers with the most frequent class."""
