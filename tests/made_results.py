"""Results of runs that were never trained, with numbers that are known."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from unseen.results.result import Calibration, DomainResult, RuleResult, RunResult


def counted(confusion: Any, error: float = 0.0) -> DomainResult:
    """With this confusion matrix and calibration error."""
    counts = np.array(confusion)
    images, correct = int(counts.sum()), int(counts.trace())
    confidence = correct + error * images
    bins = Calibration(images=(images,), confidence=(confidence,), correct=(correct,))
    return DomainResult.counted(counts, bins)


def measured(accuracy: float, images: int = 10**9, error: float = 0.0) -> DomainResult:
    """Two classes, all mistakes in the first; so many images that no accuracy is rounded."""
    right = round(accuracy * images)
    return counted([[right, images - right], [0, 0]], error)


def by_domain(accuracies: Mapping[str, float]) -> dict[str, DomainResult]:
    return {domain: measured(accuracy) for domain, accuracy in accuracies.items()}


def made_result(
    method: str,
    unseen: Mapping[str, float],
    training: Mapping[str, float] | None = None,
    seed: int = 0,
    rules: tuple[str, ...] = ("source", "last"),
    results: Mapping[str, RuleResult] | None = None,
    **changed: Any,
) -> RunResult:
    training = training or {"photo": 0.9, "cartoon": 0.7}
    inside = by_domain(training)
    views = {"out_of_domain": by_domain(unseen), "in_domain": inside, "known_domain": inside}
    about = {
        "run": f"{method}-{'-'.join(unseen)}-{seed}",
        "dataset": "pacs",
        "method": method,
        "backbone": "resnet18",
        "setting": "generalization",
        "seed": seed,
        "steps": 300,
        "training_domains": tuple(training),
        "unseen_domains": tuple(unseen),
        "classes": ("dog", "house"),
        "selection": "source",
        "data": "0123",
        "rules": results or {rule: RuleResult(step=200, views=views) for rule in rules},
    }
    return RunResult(**about | changed)
