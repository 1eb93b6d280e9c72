"""What is left of a sweep, read from the records: what to do next, how each run went."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from unseen.config import Experiment, complete_settings
from unseen.errors import UnseenError
from unseen.experiments.run.jobs import Job, Means, Outcome, Report, SweepStopped
from unseen.experiments.run.resources import threads
from unseen.experiments.run.train_job import Answer, Order
from unseen.records.folder import RunFolder, run_name
from unseen.training.checkpoints import steps_saved
from unseen.training.execute import length
from unseen.training.interruptions import StopFlag

_BUSY_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
"""A network file system may show new files late."""


@dataclass
class Task:
    """A job that is not done yet."""

    job: Job
    losses: int = 0
    """Processes that died over it, in this command."""
    attempts: int = 0
    """That had failed, by the record, when it was given out."""
    not_before: float = 0.0


class Ledger:
    """The state of a sweep is the records on disk; this only remembers what is under way.

    A run that raised an error is tried again while its attempts, which are counted in its record
    over all commands, are at most `retries`. One whose process died is tried again `retries` times
    in this command. Runs that fail together are tried one by one.
    """

    patience = _PATIENCE_SECONDS

    def __init__(self, jobs: Sequence[Job], runs: Path, means: Means, report: Report) -> None:
        self._runs = runs
        self._means = means
        self._report = report
        self._known: dict[Path, Outcome] = {}
        self._planned = [self._path(experiment) for job in jobs for experiment in job.experiments]
        self._waiting: deque[Task] = deque()
        self._under_way = 0
        for job in jobs:
            self._add(job)

    @property
    def left(self) -> int:
        """Runs of which it is not known yet how they went."""
        return len(set(self._planned) - self._known.keys())

    @property
    def tasks_left(self) -> int:
        return len(self._waiting) + self._under_way

    def outcomes(self) -> list[Outcome]:
        """In the order of the plan."""
        return [self._known[path] for path in self._planned]

    def next_task(self) -> Task | None:
        """What can be started now; it counts as under way until it is answered or lost."""
        for _ in range(len(self._waiting)):
            task = self._waiting.popleft()
            if task.not_before <= time.monotonic():
                self._under_way += 1
                task.attempts = self._attempts(task)
                return task
            self._waiting.append(task)
        return None

    def order(self, task: Task) -> Order:
        """The task as plain data."""
        experiments = task.job.experiments
        return Order(
            tuple(complete_settings(experiment) for experiment in experiments),
            tuple(str(self._path(experiment).absolute()) for experiment in experiments),
            task.job.until,
            threads(self._means.cpus),
        )

    def answered(self, task: Task, answer: Answer) -> None:
        """A worker came back."""
        if answer.state == "stopped":
            self.lost(task, "the process that trained it was asked to stop")
            return
        self._under_way -= 1
        if answer.state == "busy":
            task.not_before = time.monotonic() + _BUSY_SECONDS
            self._waiting.append(task)
        elif answer.state == "failed" and len(task.job.experiments) > 1:
            self._one_by_one(task.job)
        else:
            self._wait_for_record(task, answer)
            self._add(task.job)

    def lost(self, task: Task, reason: str) -> None:
        """The process that worked on it is gone."""
        self._under_way -= 1
        task.losses += 1
        if task.losses <= self._means.retries:
            self._waiting.append(task)
        elif len(task.job.experiments) > 1:
            self._one_by_one(task.job)
        else:
            for experiment in task.job.experiments:
                done = self._look(experiment, task.job.until)
                self._settle(done or Outcome(self._path(experiment), "failed", reason))

    def _add(self, job: Job) -> None:
        """Settle what the records know already; the rest is to be done."""
        open_runs = []
        for experiment in job.experiments:
            outcome = self._look(experiment, job.until)
            if outcome is None:
                open_runs.append(experiment)
            else:
                self._settle(outcome)
        if not open_runs:
            return
        several = len(job.experiments) > 1
        failed_before = any(self._folder(e).read_failure() for e in job.experiments)
        if several and (failed_before or job.until is not None):
            self._one_by_one(Job(tuple(open_runs), job.until))
        else:
            self._waiting.append(Task(job))

    def _one_by_one(self, job: Job) -> None:
        for experiment in job.experiments:
            self._add(Job((experiment,), job.until))

    def _look(self, experiment: Experiment, until: int | None) -> Outcome | None:
        """How the run stands, unless there is something left to do."""
        folder = self._folder(experiment)
        if folder.finished:
            folder.failure.unlink(missing_ok=True)
            return Outcome(folder.path, "finished")
        if until is not None and steps_saved(folder.checkpoint) >= until < length(experiment):
            return Outcome(folder.path, "paused")
        failure = folder.read_failure()
        if failure is not None and failure.attempts > self._means.retries:
            tried = "once" if failure.attempts == 1 else f"{failure.attempts} times"
            again = f"(tried {tried}; --retries {failure.attempts} tries it again)"
            return Outcome(folder.path, "failed", f"{failure.error} {again}")
        return None

    def _settle(self, outcome: Outcome) -> None:
        if outcome.path not in self._known:
            self._known[outcome.path] = outcome
            self._report(outcome)

    def _wait_for_record(self, task: Task, answer: Answer) -> None:
        """What a worker says it did has to be in the folder that the command looks at."""
        given_up = time.monotonic() + self.patience
        while not self._recorded(task, answer):
            if time.monotonic() > given_up:
                name = self._path(task.job.experiments[0]).name
                raise UnseenError(
                    f"a worker has trained {name}, but its record is not in "
                    f"{self._runs.absolute()}: the folder of runs has to be on storage that all "
                    "nodes share; --runs DIR names another one"
                )
            time.sleep(0.1)

    def _recorded(self, task: Task, answer: Answer) -> bool:
        if answer.state == "failed" and self._attempts(task) > task.attempts:
            return True
        return all(self._look(e, task.job.until) is not None for e in task.job.experiments)

    def _attempts(self, task: Task) -> int:
        failures = [self._folder(e).read_failure() for e in task.job.experiments]
        return sum(failure.attempts for failure in failures if failure is not None)

    def _folder(self, experiment: Experiment) -> RunFolder:
        return RunFolder(self._path(experiment))

    def _path(self, experiment: Experiment) -> Path:
        return self._runs / run_name(experiment)


class Crew(Protocol):
    """Those who carry out what a ledger has left."""

    def give_out(self) -> None: ...

    def collect(self) -> None: ...

    def stop(self) -> None: ...


def see_through(ledger: Ledger, crew: Crew, stop: StopFlag) -> None:
    """Until nothing is left; a signal ends it early, once what is under way has been saved."""
    while ledger.tasks_left and not stop.signal_number:
        crew.give_out()
        crew.collect()
    if ledger.tasks_left:
        crew.stop()
        raise SweepStopped(stop.signal_number, ledger.left)
