"""What is done next, and what counts as failed: from records and answers, without any process."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.experiments.tiny_sweep import tiny_job

from unseen.config import Experiment
from unseen.errors import UnseenError
from unseen.experiments.run import ledger as ledger_module
from unseen.experiments.run.jobs import Job, Means, Outcome
from unseen.experiments.run.ledger import Ledger
from unseen.experiments.run.train_job import Answer
from unseen.records.folder import RunFolder, run_name

ONE = tiny_job().experiments[0]
TWO = tiny_job(seed=1).experiments[0]


@pytest.fixture
def reported() -> list[Outcome]:
    return []


@pytest.fixture
def opened(tmp_path: Path, reported: list[Outcome]) -> Callable[..., Ledger]:
    def open_ledger(*jobs: Job, retries: int = 1) -> Ledger:
        return Ledger(jobs, tmp_path, Means(retries=retries), reported.append)

    return open_ledger


def folder_of(runs: Path, experiment: Experiment) -> RunFolder:
    folder = RunFolder(runs / run_name(experiment))
    folder.create(experiment)
    return folder


def finish(runs: Path, experiment: Experiment) -> None:
    folder_of(runs, experiment).result.write_text("{}")


def test_finished_runs_are_known_at_once_and_in_the_order_of_the_plan(
    opened, tmp_path: Path, reported: list[Outcome]
) -> None:
    finish(tmp_path, TWO)
    ledger = opened(Job((ONE,)), Job((TWO,)))
    assert (ledger.left, ledger.tasks_left) == (1, 1)
    assert reported == [Outcome(tmp_path / run_name(TWO), "finished")]
    task = ledger.next_task()
    assert task.job.experiments == (ONE,)
    assert ledger.next_task() is None
    assert ledger.tasks_left == 1
    finish(tmp_path, ONE)
    ledger.answered(task, Answer("done"))
    assert ledger.tasks_left == 0
    assert [outcome.path.name for outcome in ledger.outcomes()] == [run_name(ONE), run_name(TWO)]


def test_a_finished_run_has_no_failure(opened, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ONE)
    folder.write_failure("broken", "trace")
    finish(tmp_path, ONE)
    (outcome,) = opened(Job((ONE,)), retries=0).outcomes()
    assert outcome.state == "finished"
    assert not folder.failure.exists()


def test_errors_are_counted_over_commands(opened, tmp_path: Path) -> None:
    """With one retry a run is tried twice in all, whoever asks; two retries allow one more."""
    folder = folder_of(tmp_path, ONE)
    for attempt in (1, 2):
        ledger = opened(Job((ONE,)))
        task = ledger.next_task()
        folder.write_failure(f"error {attempt}", "trace")
        ledger.answered(task, Answer("failed", "error"))
        assert ledger.tasks_left == (1 if attempt == 1 else 0)
    (outcome,) = opened(Job((ONE,))).outcomes()
    assert outcome == Outcome(
        folder.path, "failed", "error 2 (tried 2 times; --retries 2 tries it again)"
    )
    assert opened(Job((ONE,)), retries=2).next_task() is not None


def test_lost_processes_are_counted_in_this_command(opened, tmp_path: Path) -> None:
    ledger = opened(Job((ONE,)), Job((TWO,)))
    task = ledger.next_task()
    ledger.lost(task, "died")
    other = ledger.next_task()
    assert other.job.experiments == (TWO,)  # the one that was lost comes last
    finish(tmp_path, TWO)
    ledger.answered(other, Answer("done"))
    again = ledger.next_task()
    ledger.lost(again, "died again")
    assert [(o.state, o.error) for o in ledger.outcomes()] == [
        ("failed", "died again"),
        ("finished", ""),
    ]
    assert opened(Job((ONE,))).tasks_left == 1  # another command tries it anew


def test_a_process_that_dies_after_its_work_loses_nothing(opened, tmp_path: Path) -> None:
    ledger = opened(Job((ONE,)), retries=0)
    task = ledger.next_task()
    finish(tmp_path, ONE)
    ledger.lost(task, "died")
    assert ledger.outcomes()[0].state == "finished"


def test_a_busy_run_is_not_a_failure(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(Job((ONE,)), retries=0)
    now = time.monotonic()
    monkeypatch.setattr(ledger_module.time, "monotonic", lambda: now)
    for _ in range(5):
        task = ledger.next_task()
        ledger.answered(task, Answer("busy"))
        assert ledger.next_task() is None
        now += 2
    assert ledger.tasks_left == 1
    assert ledger.next_task() is task


def test_what_fails_together_is_tried_one_by_one(opened, tmp_path: Path) -> None:
    ledger = opened(Job((ONE, TWO)))
    task = ledger.next_task()
    assert len(ledger.order(task).folders) == 2
    ledger.answered(task, Answer("failed", "too many"))
    singles = [ledger.next_task(), ledger.next_task()]
    assert [single.job.experiments for single in singles] == [(ONE,), (TWO,)]
    folder_of(tmp_path, TWO).write_failure("broken", "trace")
    again = opened(Job((ONE, TWO)))  # does not fail as a whole a second time
    assert [again.next_task().job.experiments for _ in range(2)] == [(ONE,), (TWO,)]


def test_what_dies_together_is_tried_one_by_one(opened) -> None:
    ledger = opened(Job((ONE, TWO)), retries=1)
    for _ in range(2):
        task = ledger.next_task()
        assert len(task.job.experiments) == 2
        ledger.lost(task, "died")
    assert [ledger.next_task().job.experiments for _ in range(2)] == [(ONE,), (TWO,)]


def test_runs_pause_one_by_one(opened) -> None:
    ledger = opened(Job((ONE, TWO), until=4))
    task = ledger.next_task()
    assert (task.job.experiments, ledger.order(task).until) == ((ONE,), 4)


def test_a_pause_is_known_from_the_checkpoint(opened, tmp_path: Path) -> None:
    """Also when the run failed later: decisions about it are then the same as they were."""
    folder = folder_of(tmp_path, ONE)
    about = json.dumps({"step": 6})  # of 6: it was killed before its result was written
    save_file({"x": np.zeros(1)}, folder.checkpoint, metadata={"about": about})
    folder.write_failure("broken", "trace")
    (outcome,) = opened(Job((ONE,), until=5), retries=0).outcomes()
    assert outcome == Outcome(folder.path, "paused")
    assert opened(Job((ONE,), until=6)).tasks_left == 1
    assert opened(Job((ONE,), until=7)).tasks_left == 1


@pytest.mark.parametrize("state", ["done", "failed"])
def test_records_that_do_not_arrive(
    opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state
) -> None:
    """Workers on nodes with a disk of their own; an old failure here must not hide that."""
    monkeypatch.setattr(Ledger, "patience", 0.0)
    folder_of(tmp_path, ONE).write_failure("broken", "trace")
    ledger = opened(Job((ONE,)))
    task = ledger.next_task()
    with pytest.raises(UnseenError, match="on storage that all nodes share"):
        ledger.answered(task, Answer(state))


def test_an_order_is_plain_data(opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger([Job((ONE,), until=3)], Path("runs"), Means(cpus=2.5), lambda outcome: None)
    order = ledger.order(ledger.next_task())
    assert order.folders == (str(tmp_path / "runs" / run_name(ONE)),)
    assert (order.until, order.threads) == (3, 2)
    assert order.settings[0]["data"]["unseen_domain"] == ["outlines"]
