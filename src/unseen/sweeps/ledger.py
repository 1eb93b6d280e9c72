"""Which jobs are left, read from the records: what to train next, and how each run went."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path

from unseen.errors import UnseenError
from unseen.results.folder import RunFolder
from unseen.sweeps.jobs import Job, Outcome, Reply
from unseen.training.checkpoints import steps_saved

_BUSY_SECONDS = 1.0
_PATIENCE_SECONDS = 60.0
"""A network file system may show new files late."""

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
        self, jobs: Sequence[Job], retries: int, report: Callable[[Outcome], None]
    ) -> None:
        self._retries = retries
        self._report = report
        self._planned = [folder for job in jobs for folder in job.folders]
        self._outcomes: dict[Path, Outcome] = {}
        self._waiting: deque[Job] = deque()
        self._under_way: dict[Folders, tuple[Job, int]] = {}
        self._losses: Counter[Folders] = Counter()
        self._not_before: dict[Folders, float] = {}
        for job in jobs:
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

    def outcomes(self) -> list[Outcome]:
        """In the order of the plan."""
        return [self._outcomes[path] for path in self._planned]

    def next_job(self) -> Job | None:
        """What can be started now; it counts as under way until there is a reply."""
        for _ in range(len(self._waiting)):
            job = self._waiting.popleft()
            if self._not_before.get(job.folders, 0.0) <= time.monotonic():
                self._under_way[job.folders] = (job, _attempts(job))
                return job
            self._waiting.append(job)
        return None

    def reply(self, job: Job, reply: Reply) -> None:
        """A job has ended, one way or another."""
        _, attempts = self._under_way.pop(job.folders)
        if reply.state in ("lost", "stopped"):
            self._lost(job, reply)
        elif reply.state == "busy":
            self._not_before[job.folders] = time.monotonic() + _BUSY_SECONDS
            self._waiting.append(job)
        elif reply.state == "failed" and len(job.folders) > 1:
            self._split(job)
        else:
            self._wait_for_record(job, reply, attempts)
            self._add(job, reply.remarks)

    def _lost(self, job: Job, reply: Reply) -> None:
        self._losses[job.folders] += 1
        if self._losses[job.folders] <= self._retries:
            self._waiting.append(job)
        elif len(job.folders) > 1:
            self._split(job)
        else:
            for path in job.folders:
                known = self._known(path, job.until)
                self._settle(known or Outcome(path, "failed", reply.error))

    def _add(self, job: Job, remarks: tuple[str, ...] = ()) -> None:
        """Settle what the records know already; the rest is to be trained."""
        known = {path: self._known(path, job.until) for path in job.folders}
        for outcome in known.values():
            if outcome is not None:
                self._settle(outcome._replace(remarks=remarks))
        if all(known.values()):
            return
        several = len(job.folders) > 1
        failed_before = any(RunFolder(path).read_failure() for path in job.folders)
        if several and (failed_before or job.until is not None):
            self._split(job)
        else:
            self._waiting.append(job)

    def _split(self, job: Job) -> None:
        for single in job.one_by_one:
            self._add(single)

    def _known(self, path: Path, until: int | None) -> Outcome | None:
        """How the run stands, unless there is something left to do."""
        folder = RunFolder(path)
        if folder.finished:
            folder.failure.unlink(missing_ok=True)
            return Outcome(path, "finished")
        if until is not None and steps_saved(folder.checkpoint) >= until:
            return Outcome(path, "paused")
        failure = folder.read_failure()
        if failure is not None and failure.attempts > self._retries:
            tried = "once" if failure.attempts == 1 else f"{failure.attempts} times"
            again = f"(tried {tried}; --retries {failure.attempts} tries it again)"
            return Outcome(path, "failed", f"{failure.error} {again}")
        return None

    def _settle(self, outcome: Outcome) -> None:
        if outcome.path not in self._outcomes:
            self._outcomes[outcome.path] = outcome
            self._report(outcome)

    def _wait_for_record(self, job: Job, reply: Reply, attempts: int) -> None:
        """What a worker says it did has to be in the folder that this process looks at."""
        deadline = time.monotonic() + self.patience
        while not (
            (reply.state == "failed" and _attempts(job) > attempts)
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
    return sum(failure.attempts for failure in failures if failure is not None)
