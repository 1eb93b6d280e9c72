"""A sweep on this machine: worker processes that live as long as there is work."""

from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from unseen.experiments.run.jobs import Job, Means, Outcome, Report
from unseen.experiments.run.ledger import Ledger, see_through
from unseen.experiments.run.resources import worker_environments
from unseen.experiments.run.worker import Worker
from unseen.training.interruptions import stop_requests

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_SAVE = 10.0


def run_here(jobs: Sequence[Job], runs: Path, means: Means, report: Report) -> list[Outcome]:
    """Carry out jobs in processes of their own, as many at a time as the means allow.

    May be killed at any moment, as may any worker: the records are the state, and the same call
    goes on from them. How often a failed run is tried again is said at `Ledger`.
    """
    ledger = Ledger(jobs, runs, means, report)
    if not ledger.tasks_left:
        return ledger.outcomes()
    crew = Workers(worker_environments(means), ledger)
    with stop_requests() as stop:
        try:
            see_through(ledger, crew, stop)
        finally:
            crew.end()
    return ledger.outcomes()


class Workers:
    """The workers, each with an environment of its own; one that dies leaves room for another."""

    def __init__(self, environments: Sequence[Mapping[str, str]], ledger: Ledger) -> None:
        self._environments = environments
        self._ledger = ledger
        self._workers: dict[int, Worker] = {}

    def give_out(self) -> None:
        """A task to everybody who has none. Workers are started only when there is one for them."""
        for place, environment in enumerate(self._environments):
            worker = self._workers.get(place)
            if worker is not None and (worker.task is not None or not worker.alive):
                continue
            task = self._ledger.next_task()
            if task is None:
                return
            order = self._ledger.order(task)
            worker = self._workers.setdefault(place, worker or Worker(environment))
            worker.give(task, order)

    def collect(self) -> None:
        """Wait a moment for answers, and for workers that have died."""
        self._wait(_SECONDS_BETWEEN_LOOKS)
        for place, worker in list(self._workers.items()):
            answer, task = worker.answer(), worker.task
            if answer is not None and task is not None:
                worker.task = None
                self._ledger.answered(task, answer)
            elif not worker.alive:
                reason = worker.how_it_died()
                self._dismiss(place)
                if task is not None:
                    self._ledger.lost(task, reason)

    def stop(self) -> None:
        """Every run that is under way saves its state; one at its last step still finishes."""
        for worker in self._workers.values():
            worker.ask_to_stop()
        while self._workers:
            if not self._wait(_SECONDS_TO_SAVE):
                for worker in self._workers.values():
                    worker.ask_to_stop()
            for place, worker in list(self._workers.items()):
                answer = worker.answer()
                if answer is not None and answer.state == "done" and worker.task is not None:
                    self._ledger.answered(worker.task, answer)
                if answer is not None or not worker.alive:
                    self._dismiss(place)

    def end(self) -> None:
        """No worker is left, whatever it was doing."""
        for place in list(self._workers):
            self._dismiss(place)

    def _dismiss(self, place: int) -> None:
        self._workers.pop(place).end()

    def _wait(self, seconds: float) -> bool:
        doors = [door for worker in self._workers.values() for door in worker.doors]
        return bool(wait(doors, seconds))
