"""The loop that trains jobs to their end, wherever that is: the contract of a pool."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from unseen.sweeps.jobs import Job, Outcome, Reply, Resources, Stopped, Watcher
from unseen.sweeps.ledger import Ledger
from unseen.training.interruptions import stop_requests

_SECONDS_TO_SAVE = 30.0


class Pool(Protocol):
    """Processes that train jobs; the ledger decides which."""

    @property
    def has_room(self) -> bool: ...

    def start(self, job: Job) -> None: ...

    def wait(self) -> list[tuple[Job, Reply]]:
        """Jobs that have ended; waits a moment if there are none."""
        ...

    @property
    def news(self) -> str:
        """What keeps a job from its first step, such as images that are prepared."""
        ...

    def ask_to_stop(self, force: bool) -> None:
        """Every job that is under way saves its state."""


def run_jobs(jobs: Sequence[Job], resources: Resources, watcher: Watcher) -> list[Outcome]:
    """Train jobs; finished runs are skipped, unfinished ones resumed.

    May be killed at any moment, as may any worker: the records are the state, and the same call
    continues from them. How often a failed run is tried again is described at `Ledger`.
    """
    ledger = Ledger(jobs, resources.retries, watcher.ended)
    if ledger.jobs_left:
        with _open_pool(resources, watcher) as pool, stop_requests() as stop:
            while ledger.jobs_left and not stop.signal_number:
                _start_and_collect(ledger, pool)
                watcher.under_way(ledger.under_way, pool.news)
            if ledger.jobs_left:
                _stop(ledger, pool)
                raise Stopped(stop.signal_number, ledger.runs_left)
    return ledger.outcomes()


def _open_pool(resources: Resources, watcher: Watcher) -> AbstractContextManager[Pool]:
    if resources.on == "ray":
        from unseen.sweeps.ray import ray_pool

        return ray_pool(resources)
    if resources.workers == 0:
        from unseen.sweeps.workers import ThisProcess

        return nullcontext(ThisProcess(watcher.begin))
    from unseen.sweeps.workers import worker_pool

    return worker_pool(resources)


def _start_and_collect(ledger: Ledger, pool: Pool) -> None:
    while pool.has_room and (job := ledger.next_job()) is not None:
        pool.start(job)
    for job, reply in pool.wait():
        ledger.reply(job, reply)


def _stop(ledger: Ledger, pool: Pool) -> None:
    """Every run that is under way saves its state; one at its last step still finishes."""
    pool.ask_to_stop(force=False)
    deadline = time.monotonic() + _SECONDS_TO_SAVE
    under_way = len(ledger.under_way)
    while under_way:
        if time.monotonic() > deadline:
            pool.ask_to_stop(force=True)
        for job, reply in pool.wait():
            under_way -= 1
            if reply.state == "done":
                ledger.reply(job, reply)
