"""Results of runs that were never trained, for tables whose numbers are known."""

from collections.abc import Callable
from typing import Any

import pytest

MakeResult = Callable[..., dict[str, Any]]


def _measured(accuracies: dict[str, float]) -> dict[str, Any]:
    return {
        domain: {"accuracy": accuracy, "count": 100, "confusion": []}
        for domain, accuracy in accuracies.items()
    }


def _make_result(
    method: str,
    unseen: dict[str, float],
    training: dict[str, float] | None = None,
    seed: int = 0,
    rules: tuple[str, ...] = ("source", "last"),
    **changed: Any,
) -> dict[str, Any]:
    training = training or {"photo": 0.9, "cartoon": 0.7}
    views = {
        "out_of_domain": _measured(unseen),
        "in_domain": _measured(training),
        "known_domain": _measured(training),
    }
    return {
        "format": 1,
        "run": f"{method}-{'-'.join(unseen)}-{seed}",
        "dataset": "pacs",
        "method": method,
        "backbone": "resnet18",
        "seed": seed,
        "steps": 300,
        "training_domains": list(training),
        "unseen_domains": list(unseen),
        "classes": ["dog", "house"],
        "selection": "source",
        "data": "0123",
        "results": {rule: {"step": 200, "views": views} for rule in rules},
        **changed,
    }


@pytest.fixture
def make_result() -> MakeResult:
    """`make_result("dmg", {"sketch": 0.6}, seed=1, steps=200)` is the content of a result.json."""
    return _make_result
