"""Results of runs that were never trained, for tables and pages whose numbers are known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.made_results import made_result

from unseen.reports.page.studies import Study, load_runs, make_studies
from unseen.reports.page.write import write_report
from unseen.results.files import FORMAT
from unseen.results.folder import RunFolder
from unseen.results.result import RunResult

MakeResult = Callable[..., RunResult]
MakeRun = Callable[..., Path]


@pytest.fixture
def make_result() -> MakeResult:
    """`make_result("dmg", {"sketch": 0.6}, seed=1, steps=200)` is the result of a run."""
    return made_result


def write_run(
    folder: Path, result: RunResult, metrics: Sequence[dict[str, Any]] = (), **method: Any
) -> Path:
    """A run folder with this result; `finished=False` leaves the result out."""
    finished = method.pop("finished", True)
    path = folder / f"{result.run}".replace("/", "_").replace("<", "_")
    path.mkdir(parents=True)
    settings = {
        "format": FORMAT,
        "data": {
            "name": result.dataset,
            "unseen_domain": result.unseen_domains,
            "training_domains": [],
        },
        "network": {"name": result.backbone},
        "method": {"name": result.method, **method},
        "steps": result.steps,
        "selection": result.selection,
        "seed": result.seed,
    }
    (path / "settings.json").write_text(json.dumps(settings))
    environment = {"command": ["unseen", "compare", "pacs"], "python": "3.11"}
    (path / "environment.json").write_text(json.dumps(environment))
    lines = "".join(json.dumps(record) + "\n" for record in metrics)
    (path / "metrics.jsonl").write_text(lines)
    if finished:
        RunFolder(path).write_result(result)
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
        result = made_result(method, unseen, training, **about)
        return write_run(tmp_path / "runs", result, metrics, **(settings or {}))

    return make


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., str]:
    """`report(rule="last")` is the page of the runs that were made."""

    def write(**options: Any) -> str:
        page = write_report(tmp_path / "runs", tmp_path / "out", **options)
        return page.read_text(encoding="utf-8")

    return write


@pytest.fixture
def studies(tmp_path: Path) -> Callable[[], list[Study]]:
    return lambda: make_studies(load_runs(tmp_path / "runs")[0], None)
