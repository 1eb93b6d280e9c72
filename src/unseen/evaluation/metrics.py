"""Counts that add up over batches and devices, and the metrics that derive from them."""

from typing import Any

import torch
from torch import Tensor

N_BINS = 15


class Counts:
    """Confusion (true class by predicted class) and confidence bins, as one flat tensor."""

    def __init__(self, n_classes: int, device: torch.device) -> None:
        self.n_classes = n_classes
        self.values = torch.zeros(n_classes**2 + 3 * N_BINS, dtype=torch.float64, device=device)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Count one batch of class scores (logits)."""
        self.values += _tally(scores.unsqueeze(0), labels).squeeze(0)

    def summary(self) -> dict[str, Any]:
        """Plain data for the run record."""
        return _summary(self.values, self.n_classes)


class StackedCounts:
    """As `Counts`, of several models that answer the same images."""

    def __init__(self, n_models: int, n_classes: int, device: torch.device) -> None:
        self.n_classes = n_classes
        self.values = Counts(n_classes, device).values.repeat(n_models, 1)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Count one batch of class scores `[models, images, classes]`."""
        self.values += _tally(scores, labels)

    def summary(self) -> list[dict[str, Any]]:
        """That of each model."""
        return [_summary(values, self.n_classes) for values in self.values]


def _summary(values: Tensor, n_classes: int) -> dict[str, Any]:
    square = n_classes**2
    confusion = values[:square].long().reshape(n_classes, n_classes)
    count, confidence, correct = values[square:].reshape(3, N_BINS).tolist()
    total = int(confusion.sum())
    return {
        "accuracy": int(confusion.diagonal().sum()) / total,
        "count": total,
        "ece": expected_calibration_error(count, confidence, correct),
        "confusion": confusion.tolist(),
        "calibration": {
            "edges": [i / N_BINS for i in range(N_BINS + 1)],
            "count": [int(c) for c in count],
            "confidence": confidence,
            "correct": [int(c) for c in correct],
        },
    }


def _tally(scores: Tensor, labels: Tensor) -> Tensor:
    """`[models, values of Counts]`, from scores `[models, images, classes]`."""
    n_models, _, n_classes = scores.shape
    confidence, predicted = scores.float().softmax(dim=2).max(dim=2)
    bins = (confidence * N_BINS).long().clamp(0, N_BINS - 1)

    def count(cells: Tensor, number: int, weights: Tensor | None = None) -> Tensor:
        apart = cells + number * torch.arange(n_models, device=cells.device).unsqueeze(1)
        flat = None if weights is None else weights.double().flatten()
        found = torch.bincount(apart.flatten(), flat, minlength=n_models * number)
        return found.double().view(n_models, number)

    parts = [
        count(labels * n_classes + predicted, n_classes**2),
        count(bins, N_BINS),
        count(bins, N_BINS, confidence),
        count(bins, N_BINS, predicted == labels),
    ]
    return torch.cat(parts, dim=1)


def expected_calibration_error(
    count: list[float], confidence: list[float], correct: list[float]
) -> float:
    """Mean gap between confidence and accuracy, weighted by how many images a bin holds."""
    gaps = [abs(conf - right) for conf, right in zip(confidence, correct, strict=True)]
    return sum(gaps) / sum(count)
