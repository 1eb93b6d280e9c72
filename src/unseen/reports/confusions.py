"""Confusion matrices as figures and as lists, however many classes there are."""

from collections.abc import Iterator, Sequence

import numpy as np

from unseen.reports.figures.grids import HeatPanel, number_texts

MOST_CLASSES = 40  # of a matrix that can be read


def shares(confusion: np.ndarray) -> np.ndarray:
    """Returns each row divided by its sum; NaN where a class has no image."""
    total = confusion.sum(axis=1, keepdims=True)
    return np.divide(confusion, total, out=np.full(confusion.shape, np.nan), where=total > 0)


def share_panel(
    title: str, rows: Sequence[str], columns: Sequence[str], values: np.ndarray, *axes: str
) -> HeatPanel:
    """Returns a panel of shares, written as percent."""
    texts = number_texts(100 * values, ".0f")
    return HeatPanel(title, tuple(rows), tuple(columns), values, texts, *axes)


def confusion_panel(title: str, confusion: np.ndarray, classes: Sequence[str]) -> HeatPanel:
    return share_panel(title, classes, classes, shares(confusion), "true", "predicted")


def most_confused(confusion: np.ndarray) -> np.ndarray:
    """Returns the classes with the most mistakes, as true or predicted class: at most 40, in
    order."""
    wrong = confusion - np.diag(confusion.diagonal())
    mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)
    return np.sort(np.argsort(-mistakes, kind="stable")[:MOST_CLASSES])


def frequent_confusions(
    confusion: np.ndarray, classes: Sequence[str], most: int = 8
) -> Iterator[tuple[str, str, int]]:
    """Yields true class, predicted class and number of images, the most frequent first."""
    wrong = confusion - np.diag(confusion.diagonal())
    for place in np.argsort(-wrong, axis=None)[:most]:
        true, predicted = map(int, np.unravel_index(place, wrong.shape))
        if wrong[true, predicted]:
            yield classes[true], classes[predicted], int(wrong[true, predicted])
