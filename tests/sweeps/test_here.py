"""Jobs in worker processes: as one by one, whatever goes wrong with one of them."""

import os
import threading
from pathlib import Path

import pytest
from tests.sweeps.tiny_sweep import PARTS, Listener, assert_same_run, below, tiny_job

from unseen.atomic import read_json
from unseen.results.folder import RunFolder
from unseen.settings.recipes import build_experiment
from unseen.sweeps.jobs import Job, Outcome, Reply, Trainer
from unseen.sweeps.ledger import run_jobs
from unseen.sweeps.resources import Resources
from unseen.training.checkpoints import steps_saved
from unseen.training.display import SilentDisplay
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
    execute(build_experiment(job.settings[0]), folder, SilentDisplay())
    return folder


def test_a_sweep_with_one_bad_method_and_one_killed_worker(
    parts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tiny_job(method={"name": f"{parts}:Failing"})
    dying = tiny_job(method={"name": f"{parts}:DyingOnce"})
    good = tiny_job("digits/dmg", seed=1)
    paused = tiny_job(seed=2, until=3)
    listener = Listener()
    jobs = [bad, dying, good, paused]
    monkeypatch.chdir(tmp_path)
    outcomes = run_jobs(jobs, Resources(workers=1), listener)

    assert [o.state for o in outcomes] == ["failed", "finished", "finished", "paused"]
    assert [o.path for o in outcomes] == [job.folders[0] for job in jobs]
    assert sorted(listener.outcomes) == sorted(outcomes)
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
    monkeypatch.setattr("unseen.sweeps.workers.Worker", None)
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    assert run_jobs(jobs, Resources(workers=1), Listener()) == outcomes
    assert [path.stat().st_mtime_ns for path in files] == before


def train(job: Job, threads: int = 1) -> Reply:
    return Trainer(threads).train(job)


def test_a_run_that_another_process_trains_is_busy(tmp_path: Path) -> None:
    job = below(tmp_path, tiny_job())
    folder = RunFolder(job.folders[0])
    with folder.locked():
        reply = train(job)
    assert reply.state == "busy"
    assert "another process is training the run" in reply.error
    assert not folder.failure.exists()


def test_settings_that_no_longer_hold_are_a_failure_of_their_run(tmp_path: Path) -> None:
    """A module that is not there in the worker, say: there is no experiment then."""
    job = below(tmp_path, tiny_job())
    broken = {**job.settings[0], "method": {"name": "no_such_module:Method"}}
    reply = train(job._replace(settings=(broken,)))
    assert reply.state == "failed"
    assert "no_such_module" in reply.error
    assert RunFolder(job.folders[0]).failure.is_file()


def test_a_domain_that_is_not_there_is_kept_as_a_failed_run(tmp_path: Path) -> None:
    job = below(tmp_path, tiny_job(data__unseen_domain="outline"))
    assert train(job).state == "failed"
    folder = RunFolder(job.folders[0])
    assert folder.read_settings()["data"]["unseen_domain"] == ["outline"]
    assert "did you mean 'outlines'" in read_json(folder.failure)["error"]


def test_a_run_that_finishes_forgets_its_failure(tmp_path: Path) -> None:
    job = below(tmp_path, tiny_job(steps=1))
    folder = RunFolder(job.folders[0])
    folder.write_failure("it was the weather", "trace")
    assert train(job).state == "done"
    assert folder.finished
    assert not folder.failure.exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    job = below(tmp_path, tiny_job(steps=1))
    weights = job.folders[0] / "weights"
    weights.mkdir(parents=True)
    (weights / ".last.safetensors.abc.partial").write_text("cut sho")
    assert train(job).state == "done"
    assert list(tmp_path.rglob(".*.partial")) == []


def test_a_job_has_the_threads_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    Trainer(threads=3)
    assert chosen == [3]


def test_remarks_of_a_run_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that fails, say: nobody sees what is printed in a worker."""

    def execute(experiment, folder, display, *rest) -> None:
        display.step(1, 0.5)
        display.preparing("decoding", 5, 10)
        display.line("the tracker does not answer")

    monkeypatch.setattr("unseen.training.execute.execute", execute)
    told: list[str] = []
    reply = Trainer(1).train(below(tmp_path, tiny_job()), told.append)
    assert told == ["decoding images 5/10"]
    assert reply == Reply("done", remarks=("the tracker does not answer",))


def test_no_worker_stays_behind() -> None:
    """After all of the above: neither processes nor threads of them."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()]
        assert [name for name in names if "spawn_main" in name] == []
    assert all("unseen" not in thread.name for thread in threading.enumerate())
