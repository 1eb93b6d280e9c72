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
        confidence, predicted = scores.float().softmax(dim=1).max(dim=1)
        cells = labels * self.n_classes + predicted
        confusion = torch.bincount(cells, minlength=self.n_classes**2)
        bins = (confidence * N_BINS).long().clamp(max=N_BINS - 1)
        right = (predicted == labels).to(torch.float64)
        parts = [
            confusion.to(torch.float64),
            torch.bincount(bins, minlength=N_BINS).to(torch.float64),
            torch.bincount(bins, weights=confidence.double(), minlength=N_BINS),
            torch.bincount(bins, weights=right, minlength=N_BINS),
        ]
        self.values += torch.cat(parts)

    def summary(self) -> dict[str, Any]:
        """Plain data for the run record."""
        square = self.n_classes**2
        confusion = self.values[:square].long().reshape(self.n_classes, self.n_classes)
        count, confidence, correct = self.values[square:].reshape(3, N_BINS).tolist()
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


def expected_calibration_error(
    count: list[float], confidence: list[float], correct: list[float]
) -> float:
    """Mean gap between confidence and accuracy, weighted by how many images a bin holds."""
    gaps = [abs(conf - right) for conf, right in zip(confidence, correct, strict=True)]
    return sum(gaps) / sum(count)
