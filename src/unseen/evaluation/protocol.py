"""The three questions of the paper: out of domain, in domain, and in a known domain."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from unseen.evaluation.metrics import Counts, Score
from unseen.records.arrays import Array
from unseen.records.result import Measured, Views

Batches = Callable[[Array], Iterable[tuple[Tensor, Tensor]]]
"""Image positions to batches of (images, labels)."""
Predict = Callable[[Tensor, int | None], Tensor]
Scores = dict[str, Score]
"""By domain."""
Add = Callable[[Tensor], Tensor]
"""Sum of a tensor over all devices."""


class Evaluator:
    """Measures a prediction function; it never sees a method, an optimizer or a loss.

    With several models, the function answers for all of them at once, `[models, images, classes]`;
    whatever is measured is a list with an entry for each model.
    """

    def __init__(
        self, batches: Batches, n_classes: int, device: torch.device, add: Add, n_models: int = 1
    ) -> None:
        self._batches = batches
        self._n_classes = n_classes
        self._device = device
        self._add = add
        self._n_models = n_models

    def measure(
        self, predict: Predict, images: Mapping[str, Array], known: bool = False
    ) -> list[Measured]:
        """With `known`, the n-th domain of `images` is told to the model as n. Domains without
        images are left out."""
        each: list[Measured] = [{} for _ in range(self._n_models)]
        for domain, counts in self._counts(predict, images, known):
            for measured, result in zip(each, counts.results(), strict=True):
                measured[domain] = result
        return each

    def score(self, predict: Predict, images: Mapping[str, Array]) -> list[Scores]:
        """Accuracy and loss alone, where the domain is not told."""
        each: list[Scores] = [{} for _ in range(self._n_models)]
        for domain, counts in self._counts(predict, images):
            for scores, score in zip(each, counts.scores(), strict=True):
                scores[domain] = score
        return each

    def _counts(
        self, predict: Predict, images: Mapping[str, Array], known: bool = False
    ) -> Iterator[tuple[str, Counts]]:
        for position, (domain, rows) in enumerate(images.items()):
            if len(rows):
                yield domain, self._count(predict, rows, position if known else None)

    @torch.no_grad()
    def _count(self, predict: Predict, rows: Array, domain: int | None) -> Counts:
        counts = Counts(self._n_models, self._n_classes, self._device)
        for images, labels in self._batches(rows):
            counts.add(predict(images, domain), labels)
        counts.values = self._add(counts.values)
        return counts


def three_views(
    evaluator: Evaluator,
    predict: Predict,
    uses_domain: bool,
    out_of_domain: Mapping[str, Array],
    in_domain: Mapping[str, Array],
) -> list[Views]:
    """Of each model; one that makes no use of the domain answers the third as the second."""
    unseen = evaluator.measure(predict, out_of_domain)
    seen = evaluator.measure(predict, in_domain)
    known = evaluator.measure(predict, in_domain, known=True) if uses_domain else seen
    return [
        {"out_of_domain": out, "in_domain": within, "known_domain": told}
        for out, within, told in zip(unseen, seen, known, strict=True)
    ]
