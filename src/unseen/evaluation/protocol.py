"""The three questions of the paper: out of domain, in domain, and in a known domain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.feed import Process
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


class DomainScores(NamedTuple):
    """What models say about images of one domain that is not told to them."""

    rows: Array
    """Positions of the images in the index."""
    scores: Tensor
    """Raw class scores (logits), float32 on the CPU: `[models, images, classes]`."""
    labels: Tensor

    def of(self, model: int) -> tuple[Array, Array]:
        """Scores of one of the models, and labels."""
        return self.scores[model].numpy(), self.labels.numpy()


class Evaluator:
    """Measures a prediction function; it never sees a method, an optimizer or a loss.

    With several models, the function answers for all of them at once, `[models, images, classes]`;
    whatever is measured is a list with an entry for each model.
    """

    def __init__(
        self, batches: Batches, n_classes: int, process: Process, add: Add, n_models: int = 1
    ) -> None:
        """`batches` gives this process's share of the images: every `world_size`-th one."""
        self._batches = batches
        self._n_classes = n_classes
        self._process = process
        self._add = add
        self.n_models = n_models

    def measure(
        self,
        predict: Predict,
        images: Mapping[str, Array],
        known: bool = False,
        temperatures: Sequence[float] | None = None,
        answered: Mapping[str, DomainScores] | None = None,
    ) -> list[Measured]:
        """With `known`, the n-th domain of `images` is told to the model as n. Domains without
        images are left out, and images that were `answered` are not asked about again."""
        each: list[Measured] = [{} for _ in range(self.n_models)]
        for position, (domain, rows) in enumerate(images.items()):
            if not len(rows):
                continue
            counts = Counts(self.n_models, self._n_classes, self._process.device, temperatures)
            given = (answered or {}).get(domain)
            if given is not None and np.array_equal(given.rows, rows):
                device = self._process.device
                counts.add(given.scores.to(device), given.labels.to(device))
            else:
                self._count(counts, predict, rows, position if known else None)
            for measured, result in zip(each, counts.results(), strict=True):
                measured[domain] = result
        return each

    def score(self, predict: Predict, images: Mapping[str, Array]) -> list[Scores]:
        """What a checkpoint is chosen by, where the domain is not told."""
        each: list[Scores] = [{} for _ in range(self.n_models)]
        for domain, rows in images.items():
            if not len(rows):
                continue
            counts = Counts(self.n_models, self._n_classes, self._process.device)
            self._count(counts, predict, rows, None)
            for scores, score in zip(each, counts.scores(), strict=True):
                scores[domain] = score
        return each

    @torch.no_grad()
    def answers(self, predict: Predict, images: Mapping[str, Array]) -> dict[str, DomainScores]:
        """All scores themselves, the same on every device; domains without images are left out."""
        found: dict[str, DomainScores] = {}
        rank, processes = self._process.rank, self._process.world_size
        for domain, rows in images.items():
            if not len(rows):
                continue
            shape, device = (self.n_models, len(rows), self._n_classes), self._process.device
            scores = torch.zeros(shape, device=device)
            labels = torch.zeros(len(rows), dtype=torch.int64, device=device)
            place = rank
            for batch, own_labels in self._batches(rows):
                end = place + processes * len(own_labels)
                own = slice(place, end, processes)
                given = predict(batch, None).reshape(self.n_models, -1, self._n_classes)
                scores[:, own], labels[own] = given.float(), own_labels
                place = end
            found[domain] = DomainScores(rows, self._add(scores).cpu(), self._add(labels).cpu())
        return found

    @torch.no_grad()
    def _count(self, counts: Counts, predict: Predict, rows: Array, domain: int | None) -> None:
        for images, labels in self._batches(rows):
            counts.add(predict(images, domain), labels)
        counts.values = self._add(counts.values)


def three_views(
    evaluator: Evaluator,
    predict: Predict,
    uses_domain: bool,
    out_of_domain: Mapping[str, Array],
    in_domain: Mapping[str, Array],
    temperatures: Sequence[float] | None = None,
    answered: Mapping[str, DomainScores] | None = None,
) -> list[Views]:
    """Of each model; one that makes no use of the domain answers the third as the second. Images of
    training domains that were `answered` without a domain are not asked about again."""
    unseen = evaluator.measure(predict, out_of_domain, False, temperatures)
    seen = evaluator.measure(predict, in_domain, False, temperatures, answered)
    known = seen
    if uses_domain:
        known = evaluator.measure(predict, in_domain, True, temperatures)
    return [
        {"out_of_domain": out, "in_domain": within, "known_domain": told}
        for out, within, told in zip(unseen, seen, known, strict=True)
    ]
