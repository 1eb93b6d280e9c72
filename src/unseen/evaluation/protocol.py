"""The three questions of the paper: out of domain, in domain, and in a known domain."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.evaluation.metrics import Counts, StackedCounts

Batches = Callable[[np.ndarray], Iterable[tuple[Tensor, Tensor]]]
"""Image positions to batches of (images, labels)."""
Predict = Callable[[Tensor, int | None], Tensor]
Add = Callable[[Tensor], Tensor]
"""Sum of a tensor over all devices."""


class Evaluator:
    """Measures a prediction function; it never sees a method, an optimizer or a loss.

    With `n_models`, the function answers for that many models at once, `[models, images, classes]`,
    and each summary is a list of theirs.
    """

    def __init__(
        self,
        batches: Batches,
        n_classes: int,
        device: torch.device,
        add: Add,
        n_models: int | None = None,
    ) -> None:
        self._batches = batches
        self._n_classes = n_classes
        self._device = device
        self._add = add
        self._n_models = n_models

    def measure(
        self, predict: Predict, images: Mapping[str, np.ndarray], known: bool = False
    ) -> dict[str, Any]:
        """By domain. With `known`, the n-th domain of `images` is told to the model as n."""
        return {
            name: self._count(predict, rows, position if known else None).summary()
            for position, (name, rows) in enumerate(images.items())
            if len(rows)
        }

    @torch.no_grad()
    def _count(
        self, predict: Predict, rows: np.ndarray, domain: int | None
    ) -> Counts | StackedCounts:
        if self._n_models is None:
            counts = Counts(self._n_classes, self._device)
        else:
            counts = StackedCounts(self._n_models, self._n_classes, self._device)
        for images, labels in self._batches(rows):
            counts.add(predict(images, domain), labels)
        counts.values = self._add(counts.values)
        return counts


def three_views(
    evaluator: Evaluator,
    predict: Predict,
    uses_domain: bool,
    out_of_domain: Mapping[str, np.ndarray],
    in_domain: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """All three views; a model that makes no use of the domain answers the third as the second."""
    seen = evaluator.measure(predict, in_domain)
    known = evaluator.measure(predict, in_domain, known=True) if uses_domain else seen
    return {
        "out_of_domain": evaluator.measure(predict, out_of_domain),
        "in_domain": seen,
        "known_domain": known,
    }
