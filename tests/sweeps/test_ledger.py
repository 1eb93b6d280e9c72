"""What is done next, and what counts as failed: from records and replies, without any process."""

import json
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.sweeps.tiny_sweep import job_of, tiny_experiment

from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, run_name
from unseen.settings.experiment import Experiment
from unseen.sweeps.ledger import Ledger
from unseen.sweeps.workers import Job, Outcome

ONE = tiny_experiment()
TWO = tiny_experiment(seed=1)


@pytest.fixture
def reported() -> dict[Path, Outcome]:
    return {}


@pytest.fixture
def opened(reported: dict[Path, Outcome]) -> Callable[..., Ledger]:
    return lambda *jobs, retries=1: Ledger(jobs, retries, reported.__setitem__)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    return partial(job_of, runs=tmp_path)


def folder_of(runs: Path, experiment: Experiment) -> RunFolder:
    folder = RunFolder(runs / run_name(experiment))
    folder.create(experiment)
    return folder


def finish(runs: Path, experiment: Experiment) -> RunFolder:
    folder = folder_of(runs, experiment)
    folder.result.write_text("{}")
    return folder


def test_finished_runs_are_known_at_once_and_in_the_order_of_the_plan(
    opened, job, tmp_path: Path, reported: dict[Path, Outcome]
) -> None:
    folder_of(tmp_path, TWO).write_failure("broken", "trace")
    done = finish(tmp_path, TWO)
    ledger = opened(job(ONE), job(TWO))
    assert (ledger.runs_left, ledger.jobs_left) == (1, 1)
    assert reported == {done.path: Outcome("finished")}
    assert not done.failure.exists()
    given = ledger.next_job()
    assert (given, ledger.next_job()) == (job(ONE), None)
    assert ledger.jobs_left == 1
    finish(tmp_path, ONE)
    ledger.reply(given, Outcome("done"))
    assert ledger.jobs_left == 0
    assert [path.name for path in ledger.outcomes()] == [run_name(ONE), run_name(TWO)]


def test_errors_are_counted_over_commands(opened, job, tmp_path: Path) -> None:
    """With one retry a run is tried twice in all, whoever asks; two retries allow one more."""
    folder = folder_of(tmp_path, ONE)
    for attempt in (1, 2):
        ledger = opened(job(ONE))
        given = ledger.next_job()
        folder.write_failure(f"error {attempt}", "trace")
        ledger.reply(given, Outcome("failed", "error"))
        assert ledger.jobs_left == (1 if attempt == 1 else 0)
    error = "error 2 (tried 2 times; --retries 2 tries it again)"
    assert opened(job(ONE)).outcomes() == {folder.path: Outcome("failed", error)}
    assert opened(job(ONE), retries=2).next_job() is not None


def test_lost_processes_are_counted_in_this_command(opened, job, tmp_path: Path) -> None:
    ledger = opened(job(ONE), job(TWO))
    ledger.reply(ledger.next_job(), Outcome("lost", "died"))
    other = ledger.next_job()
    assert other == job(TWO)  # the one that was lost comes last
    finish(tmp_path, TWO)
    ledger.reply(other, Outcome("done"))
    ledger.reply(ledger.next_job(), Outcome("lost", "died again"))
    found = [(outcome.state, outcome.error) for outcome in ledger.outcomes().values()]
    assert found == [("failed", "died again"), ("finished", "")]
    again = opened(job(ONE), retries=0)  # another command tries it anew
    given = again.next_job()
    finish(tmp_path, ONE)  # a process that dies after its work loses nothing
    again.reply(given, Outcome("lost", "died"))
    assert again.outcomes() == {given.folders[0]: Outcome("finished")}


def test_a_busy_run_is_not_a_failure(opened, job, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(job(ONE), retries=0)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(5):
        given = ledger.next_job()
        ledger.reply(given, Outcome("busy"))
        assert ledger.next_job() is None
        now += 2
    assert ledger.jobs_left == 1
    assert ledger.next_job() is given


@pytest.mark.parametrize(("state", "times"), [("failed", 1), ("lost", 2)])
def test_what_goes_wrong_together_is_tried_one_by_one(
    opened, job, tmp_path: Path, state, times: int
) -> None:
    singles = [job(ONE), job(TWO)]
    ledger = opened(job(ONE, TWO), retries=1)
    for _ in range(times):
        given = ledger.next_job()
        assert len(given.folders) == 2
        ledger.reply(given, Outcome(state, "too many"))
    assert [ledger.next_job(), ledger.next_job()] == singles
    folder_of(tmp_path, TWO).write_failure("broken", "trace")
    again = opened(job(ONE, TWO))  # does not fail as a whole a second time
    assert [again.next_job(), again.next_job()] == singles


def test_runs_pause_one_by_one_and_that_is_known_from_the_checkpoint(
    opened, job, tmp_path: Path
) -> None:
    """Also when the run failed later: decisions about it are then the same as they were."""
    assert opened(job(ONE, TWO, until=4)).next_job() == job(ONE, until=4)
    folder = folder_of(tmp_path, ONE)
    about = json.dumps({"step": 5})  # of 6
    save_file({"x": np.zeros(1)}, folder.checkpoint, metadata={"about": about})
    folder.write_failure("broken", "trace")
    assert opened(job(ONE, until=5), retries=0).outcomes() == {folder.path: Outcome("paused")}
    assert opened(job(ONE)).jobs_left == 1


@pytest.mark.parametrize("state", ["done", "failed"])
def test_records_that_do_not_arrive(
    opened, job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state
) -> None:
    """Workers on nodes with a disk of their own; an old failure here must not hide that."""
    monkeypatch.setattr(Ledger, "patience", 0.0)
    folder_of(tmp_path, ONE).write_failure("broken", "trace")
    ledger = opened(job(ONE))
    with pytest.raises(UnseenError, match="on storage that all nodes share"):
        ledger.reply(ledger.next_job(), Outcome(state))


def test_a_job_is_plain_data() -> None:
    """It travels to processes that know neither the user's modules nor made-up classes."""
    sent = job_of(ONE, until=3)
    assert pickle.loads(pickle.dumps(sent)) == sent
    assert sent.settings[0]["data"]["unseen_domain"] == ["outlines"]
