"""Counts that add up over batches and devices, and the results that they make."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.records.arrays import Array
from unseen.records.measures import MEASURES, accuracy
from unseen.records.result import Calibration, DomainResult
from unseen.settings.metrics import Metric

N_BINS = 15


class Score(NamedTuple):
    """How well a model answers some images, in short."""

    accuracy: float
    loss: float
    """Mean cross-entropy."""
    confusion: Array

    def measure(self, metric: Metric) -> float:
        return MEASURES[metric](self.confusion)


class Counts:
    """Confusion (true class by predicted class), confidence bins and summed cross-entropy of models
    that answer the same images, as one tensor `[models, values]`. With `temperatures`, one for each
    model, there are bins for the confidence at these, too."""

    def __init__(
        self,
        n_models: int,
        n_classes: int,
        device: torch.device,
        temperatures: Sequence[float] | None = None,
    ) -> None:
        self.n_models, self.n_classes = n_models, n_classes
        self._divisors = [torch.ones((), device=device)]
        if temperatures is not None:
            each = torch.tensor(temperatures, dtype=torch.float32, device=device)
            self._divisors.append(each.view(n_models, 1, 1))
        size = n_classes**2 + 3 * N_BINS * len(self._divisors) + 1
        self.values = torch.zeros(n_models, size, dtype=torch.float64, device=device)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Count one batch of class scores (logits), `[models, images, classes]`; without the first
        dimension for one model."""
        scores = scores.reshape(self.n_models, -1, self.n_classes).float()
        predicted = scores.argmax(dim=2)
        parts = [self._count(labels * self.n_classes + predicted, self.n_classes**2)]
        for divisor in self._divisors:
            confidence = (scores / divisor).softmax(dim=2).amax(dim=2)
            bins = (confidence * N_BINS).long().clamp(0, N_BINS - 1)
            parts += [
                self._count(bins, N_BINS),
                self._count(bins, N_BINS, confidence),
                self._count(bins, N_BINS, predicted == labels),
            ]
        own = _at(scores.log_softmax(dim=2), labels)
        parts.append(-own.double().sum(dim=1, keepdim=True))
        self.values += torch.cat(parts, dim=1)

    def _count(self, cells: Tensor, number: int, weights: Tensor | None = None) -> Tensor:
        apart = cells + number * torch.arange(self.n_models, device=cells.device).unsqueeze(1)
        flat = None if weights is None else weights.double().flatten()
        found = torch.bincount(apart.flatten(), flat, minlength=self.n_models * number)
        return found.double().view(self.n_models, number)

    def scores(self) -> list[Score]:
        """Of each model."""
        return [self._score(values) for values in self.values.cpu().numpy()]

    def _score(self, values: Array) -> Score:
        confusion = values[: self.n_classes**2].reshape(self.n_classes, self.n_classes)
        return Score(accuracy(confusion), float(values[-1] / confusion.sum()), confusion)

    def results(self) -> list[DomainResult]:
        """Of each model."""
        return [self._result(values) for values in self.values.cpu().numpy()]

    def _result(self, values: Array) -> DomainResult:
        square = self.n_classes**2
        bins = values[square:-1].reshape(len(self._divisors), 3, N_BINS)
        confusion = values[:square].astype(np.int64).reshape(self.n_classes, self.n_classes)
        return DomainResult.counted(confusion, *map(_calibration, bins))


def _calibration(bins: Array) -> Calibration:
    images, confidence, correct = bins
    return Calibration(
        images=tuple(map(int, images)),
        confidence=tuple(round(float(each), 6) for each in confidence),
        correct=tuple(map(int, correct)),
    )


def _at(values: Tensor, labels: Tensor) -> Tensor:
    """`[models, images]`: of all classes, the true one."""
    return values.gather(2, labels.expand(len(values), -1).unsqueeze(2)).squeeze(2)
