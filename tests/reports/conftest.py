"""Results of runs that were never trained, for tables and pages whose numbers are known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

MakeResult = Callable[..., dict[str, Any]]
MakeRun = Callable[..., Path]


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


def write_run(
    folder: Path, result: dict[str, Any], metrics: Sequence[dict[str, Any]] = (), **method: Any
) -> Path:
    """A run folder with this result; `finished=False` leaves the result out."""
    finished = method.pop("finished", True)
    path = folder / f"{result['run']}".replace("/", "_").replace("<", "_")
    path.mkdir(parents=True)
    settings = {
        "data": {
            "name": result["dataset"],
            "unseen_domain": result["unseen_domains"],
            "training_domains": [],
        },
        "network": {"name": result["backbone"]},
        "method": {"name": result["method"], **method},
        "steps": result["steps"],
        "selection": result["selection"],
        "seed": result["seed"],
    }
    (path / "settings.json").write_text(json.dumps(settings))
    environment = {"command": ["unseen", "compare", "pacs"], "python": "3.11"}
    (path / "environment.json").write_text(json.dumps(environment))
    lines = "".join(json.dumps(record) + "\n" for record in metrics)
    (path / "metrics.jsonl").write_text(lines)
    if finished:
        (path / "result.json").write_text(json.dumps(result))
    return path


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run("dmg", {"sketch": 0.6}, seed=1)` is a run folder below tmp_path / "runs"."""

    def make(
        method: str,
        unseen: dict[str, float],
        training: dict[str, float] | None = None,
        *,
        metrics: Sequence[dict[str, Any]] = (),
        settings: dict[str, Any] | None = None,
        **about: Any,
    ) -> Path:
        result = _make_result(method, unseen, training, **about)
        return write_run(tmp_path / "runs", result, metrics, **(settings or {}))

    return make
