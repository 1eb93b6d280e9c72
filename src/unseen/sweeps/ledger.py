"""The loop that trains jobs to their end, and the ledger that says what is left.

The state is the records on disk: what to train next and how each run went is read from them.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from unseen.errors import UnseenError
from unseen.results.folder import RunFolder
from unseen.sweeps.workers import Job, Outcome, Resources, ThisProcess, WorkerPool
from unseen.training.checkpoints import steps_saved
from unseen.training.devices import stop_requests

if TYPE_CHECKING:
    from unseen.sweeps.ray import RayPool
    from unseen.sweeps.train import PlanDisplay

    Pool = ThisProcess | WorkerPool | RayPool

_BUSY_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
"""A network file system may show new files late."""
_SECONDS_TO_SAVE = 30.0

Folders = tuple[Path, ...]
"""What tells jobs apart."""


class Ledger:
    """The state of a plan is the records on disk; this only remembers what is under way.

    A run that raised an error is tried again while its attempts, which are counted in its record
    over all commands, are at most `retries`. One whose process was lost is tried again `retries`
    times in this command. Runs that fail together are tried one by one.
    """

    patience = _PATIENCE_SECONDS

    def __init__(
        self, jobs: Iterable[Job], retries: int, on_end: Callable[[Path, Outcome], None]
    ) -> None:
        """`on_end` is told once of every run for which nothing is left to do. Only jobs with work
        left are kept."""
        self._retries = retries
        self._on_end = on_end
        self._planned: list[Path] = []
        self._outcomes: dict[Path, Outcome] = {}
        self._waiting: deque[Job] = deque()
        self._under_way: dict[Folders, tuple[Job, int]] = {}
        self._losses: Counter[Folders] = Counter()
        self._not_before: dict[Folders, float] = {}
        for job in jobs:
            self._planned += job.folders
            self._add(job)

    @property
    def runs_left(self) -> int:
        """Runs of which it is not known yet how they went."""
        return len(set(self._planned) - self._outcomes.keys())

    @property
    def jobs_left(self) -> int:
        return len(self._waiting) + len(self._under_way)

    @property
    def under_way(self) -> list[Job]:
        return [job for job, _ in self._under_way.values()]

    def outcomes(self) -> dict[Path, Outcome]:
        """Return how each run went, in the order of the plan."""
        return {path: self._outcomes[path] for path in self._planned}

    def next_job(self) -> Job | None:
        """Return what can be started now; it counts as under way until there is a reply."""
        for _ in range(len(self._waiting)):
            job = self._waiting.popleft()
            if self._not_before.get(job.folders, 0.0) <= time.monotonic():
                self._under_way[job.folders] = (job, _attempts(job))
                return job
            self._waiting.append(job)
        return None

    def reply(self, job: Job, outcome: Outcome) -> None:
        """Take note that a job has ended, one way or another."""
        _, attempts = self._under_way.pop(job.folders)
        if outcome.state in ("lost", "stopped"):
            self._lost(job, outcome)
        elif outcome.state == "busy":
            self._not_before[job.folders] = time.monotonic() + _BUSY_SECONDS
            self._waiting.append(job)
        elif outcome.state == "failed" and len(job.folders) > 1:
            self._split(job)
        else:
            self._wait_for_record(job, outcome, attempts)
            self._add(job, outcome.remarks)

    def _lost(self, job: Job, outcome: Outcome) -> None:
        self._losses[job.folders] += 1
        if self._losses[job.folders] <= self._retries:
            self._waiting.append(job)
        elif len(job.folders) == 1:
            path = job.folders[0]
            self._settle(path, self._known(path, job.until) or Outcome("failed", outcome.error))
        else:
            self._split(job)

    def _add(self, job: Job, remarks: tuple[str, ...] = ()) -> None:
        """Settle what the records know already; the rest is to be trained."""
        left = 0
        for path in job.folders:
            outcome = self._known(path, job.until)
            left += outcome is None
            if outcome is not None and path not in self._outcomes:
                self._settle(path, outcome._replace(remarks=remarks))
        if left and (len(job.folders) == 1 or (job.until is None and not _attempts(job))):
            self._waiting.append(job)
        elif left:
            self._split(job)

    def _split(self, job: Job) -> None:
        for single in job.one_by_one:
            self._add(single)

    def _known(self, path: Path, until: int | None) -> Outcome | None:
        """Return how the run stands, unless there is something left to do."""
        folder = RunFolder(path)
        if folder.finished:
            folder.failure.unlink(missing_ok=True)
            return Outcome("finished")
        if until is not None and steps_saved(folder.checkpoint) >= until:
            return Outcome("paused")
        failure = folder.read_failure()
        if failure is None or (attempts := failure["attempts"]) <= self._retries:
            return None
        tried = "once" if attempts == 1 else f"{attempts} times"
        again = f"(tried {tried}; --retries {attempts} tries it again)"
        return Outcome("failed", f"{failure['error']} {again}")

    def _settle(self, path: Path, outcome: Outcome) -> None:
        if path not in self._outcomes:
            self._outcomes[path] = outcome
            self._on_end(path, outcome)

    def _wait_for_record(self, job: Job, outcome: Outcome, attempts: int) -> None:
        """What a worker says it did has to be in the folder that this process looks at."""
        deadline = time.monotonic() + self.patience
        while not (
            (outcome.state == "failed" and _attempts(job) > attempts)
            or all(self._known(path, job.until) for path in job.folders)
        ):
            if time.monotonic() > deadline:
                folder = job.folders[0].absolute()
                raise UnseenError(
                    f"a worker has trained {folder.name}, but its record is not in "
                    f"{folder.parent}: the folder of runs has to be on storage that all nodes "
                    "share; --runs DIR names another one"
                )
            time.sleep(0.1)


def _attempts(job: Job) -> int:
    failures = [RunFolder(path).read_failure() for path in job.folders]
    return sum(failure["attempts"] for failure in failures if failure is not None)


class Stopped(UnseenError):
    """Ctrl-C or SIGTERM: the runs that were under way have saved their state."""

    def __init__(self, signal_number: int, left: int) -> None:
        super().__init__(
            f"stopped; everything is saved, {left} runs are left.\nContinue with the same command."
        )
        self.exit_code = 128 + signal_number


def run_jobs(
    jobs: Iterable[Job], resources: Resources, display: "PlanDisplay"
) -> dict[Path, Outcome]:
    """Train jobs; finished runs are skipped, unfinished ones resumed.

    May be killed at any moment, as may any worker: the records are the state, and the same call
    continues from them. How often a failed run is tried again is described at `Ledger`.
    """
    ledger = Ledger(jobs, resources.retries, display.ended)
    if ledger.jobs_left:
        with _open_pool(resources, display) as pool, stop_requests() as stop:
            while ledger.jobs_left and not stop.signal_number:
                start_and_collect(ledger, pool)
                display.under_way(ledger.under_way, pool.status)
            if ledger.jobs_left:
                stop_pool(ledger, pool)
                raise Stopped(stop.signal_number, ledger.runs_left)
    return ledger.outcomes()


def _open_pool(resources: Resources, display: "PlanDisplay") -> "AbstractContextManager[Pool]":
    if resources.on == "ray":
        from unseen.sweeps.ray import ray_pool

        return ray_pool(resources)
    if resources.workers == 0:
        return nullcontext(ThisProcess(display.begin))
    return closing(WorkerPool(resources))


def start_and_collect(ledger: Ledger, pool: "Pool") -> None:
    """Give the pool as many jobs as it has room for, and the ledger the replies that are there."""
    while pool.has_room and (job := ledger.next_job()) is not None:
        pool.start(job)
    for job, outcome in pool.wait():
        ledger.reply(job, outcome)


def stop_pool(ledger: Ledger, pool: "Pool", patience: float = _SECONDS_TO_SAVE) -> None:
    """Let every run that is under way save its state; one at its last step still finishes."""
    pool.ask_to_stop(force=False)
    deadline = time.monotonic() + patience
    under_way = len(ledger.under_way)
    while under_way:
        if time.monotonic() > deadline:
            pool.ask_to_stop(force=True)
        for job, outcome in pool.wait():
            under_way -= 1
            if outcome.state == "done":
                ledger.reply(job, outcome)
