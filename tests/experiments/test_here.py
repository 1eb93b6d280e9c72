"""Jobs in worker processes: as one by one, whatever goes wrong with one of them."""

import os
import threading
from pathlib import Path

import pytest
from rich.console import Console
from tests.experiments.tiny_sweep import PARTS, assert_same_run, tiny_job

from unseen.atomic import read_json
from unseen.experiments.run.here import run_here
from unseen.experiments.run.jobs import Job, Means, Outcome
from unseen.experiments.run.ledger import Ledger
from unseen.experiments.run.train_job import Order, carry_out
from unseen.records.folder import RunFolder, run_name
from unseen.training.checkpoints import steps_saved
from unseen.training.display import Display
from unseen.training.execute import execute


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with methods that go wrong, by its name."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "parts_that_break.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("UNSEEN_MARK", str(tmp_path / "mark"))
    return "parts_that_break"


def one_by_one(job: Job, path: Path) -> RunFolder:
    folder = RunFolder(path)
    with Display(Console(quiet=True), 1, "") as display:
        execute(job.experiments[0], folder, display)
    return folder


def test_a_sweep_with_one_bad_method_and_one_killed_worker(
    parts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tiny_job(method={"name": f"{parts}:Failing"})
    dying = tiny_job(method={"name": f"{parts}:DyingOnce"})
    good = tiny_job("digits/dmg", seed=1)
    paused = tiny_job(seed=2, until=3)
    reported: list[Outcome] = []
    jobs = [bad, dying, good, paused]
    monkeypatch.chdir(tmp_path)
    outcomes = run_here(jobs, Path("runs"), Means(workers=1), reported.append)

    assert [o.state for o in outcomes] == ["failed", "finished", "finished", "paused"]
    assert [o.path for o in outcomes] == [Path("runs") / run_name(j.experiments[0]) for j in jobs]
    assert sorted(reported) == sorted(outcomes)
    assert outcomes[0].error == (
        "ArithmeticError: this method is broken (tried 2 times; --retries 2 tries it again)"
    )
    failure = RunFolder(outcomes[0].path).read_failure()
    assert failure is not None
    assert (failure.error, failure.attempts) == ("ArithmeticError: this method is broken", 2)
    assert failure.traceback.startswith("Traceback")
    assert "parts_that_break.py" in failure.traceback
    assert steps_saved(RunFolder(outcomes[0].path).checkpoint) == 2  # it can be looked at
    assert steps_saved(RunFolder(outcomes[3].path).checkpoint) == 3
    assert Path("mark").exists()
    for number in (1, 2):  # the mark is there now: nothing dies in this process
        alone = one_by_one(jobs[number], tmp_path / "alone" / str(number))
        assert_same_run(outcomes[number].path, alone.path)
    _again(jobs, outcomes, monkeypatch)


def _again(jobs: list[Job], outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call starts no process, says the same, and touches no file."""
    monkeypatch.setattr("unseen.experiments.run.here.Worker", None)
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    assert run_here(jobs, Path("runs"), Means(workers=1), lambda outcome: None) == outcomes
    assert [path.stat().st_mtime_ns for path in files] == before


def order_for(job: Job, runs: Path, cpus: float = 1) -> Order:
    ledger = Ledger([job], runs, Means(cpus=cpus), lambda outcome: None)
    task = ledger.next_task()
    assert task is not None
    return ledger.order(task)


def test_a_run_that_another_process_trains_is_busy(tmp_path: Path) -> None:
    job = tiny_job()
    order = order_for(job, tmp_path)
    with RunFolder(tmp_path / run_name(job.experiments[0])).locked():
        answer = carry_out(order)
    assert answer.state == "busy"
    assert "another process is training the run" in answer.error
    assert not RunFolder(Path(order.folders[0])).failure.exists()


def test_settings_that_no_longer_hold_are_a_failure_of_their_run(tmp_path: Path) -> None:
    """A module that is not there in the worker, say: there is no experiment then."""
    order = order_for(tiny_job(), tmp_path)
    broken = order.settings[0] | {"method": {"name": "no_such_module:Method"}}
    answer = carry_out(order._replace(settings=(broken,)))
    assert answer.state == "failed"
    assert "no_such_module" in answer.error
    assert RunFolder(Path(order.folders[0])).failure.is_file()


def test_a_domain_that_is_not_there_is_kept_as_a_failed_run(tmp_path: Path) -> None:
    order = order_for(tiny_job(data__unseen_domain="outline"), tmp_path)
    assert carry_out(order).state == "failed"
    folder = RunFolder(Path(order.folders[0]))
    assert folder.read_settings()["data"]["unseen_domain"] == ["outline"]
    assert "did you mean 'outlines'" in read_json(folder.failure)["error"]


def test_a_run_that_finishes_forgets_its_failure(tmp_path: Path) -> None:
    job = tiny_job(steps=1)
    folder = RunFolder(tmp_path / run_name(job.experiments[0]))
    folder.write_failure("it was the weather", "trace")
    assert carry_out(order_for(job, tmp_path)).state == "done"
    assert folder.finished
    assert not folder.failure.exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    job = tiny_job(steps=1)
    weights = tmp_path / run_name(job.experiments[0]) / "weights"
    weights.mkdir(parents=True)
    (weights / ".last.safetensors.abc.partial").write_text("cut sho")
    assert carry_out(order_for(job, tmp_path)).state == "done"
    assert list(tmp_path.rglob(".*.partial")) == []


def test_threads_are_those_of_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    carry_out(order_for(tiny_job(steps=1), tmp_path, cpus=3))
    assert chosen == [3]


def test_no_worker_stays_behind() -> None:
    """After all of the above: neither processes nor threads of them."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()]
        assert [name for name in names if "spawn_main" in name] == []
    assert all("sweep" not in thread.name for thread in threading.enumerate())
