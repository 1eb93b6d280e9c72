"""Jobs on this machine: in worker processes that live as long as there is work."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait

from unseen.experiments.run.jobs import Job, Reply, Resources
from unseen.experiments.run.resources import worker_environments
from unseen.experiments.run.worker import Worker

_SECONDS = 0.2


@contextmanager
def worker_pool(resources: Resources) -> Iterator["WorkerPool"]:
    """No worker is left behind, whatever it was doing."""
    pool = WorkerPool(resources)
    try:
        yield pool
    finally:
        pool.close()


class WorkerPool:
    """Workers, each with an environment of its own; one that dies leaves room for another."""

    def __init__(self, resources: Resources) -> None:
        self._threads = resources.threads
        self._environments = worker_environments(resources)
        self._workers: dict[int, Worker] = {}

    def _free(self) -> int | None:
        """A place without a worker, or whose worker has no job."""
        for place in range(len(self._environments)):
            worker = self._workers.get(place)
            if worker is None or (worker.job is None and worker.alive):
                return place
        return None

    @property
    def has_room(self) -> bool:
        return self._free() is not None

    def start(self, job: Job) -> None:
        place = self._free()
        assert place is not None
        if place not in self._workers:  # workers are started only when there is a job for them
            self._workers[place] = Worker(self._environments[place], self._threads)
        self._workers[place].start(job)

    def wait(self) -> list[tuple[Job, Reply]]:
        """Jobs that have ended, by a reply or by the death of their worker."""
        doors = [door for worker in self._workers.values() for door in worker.doors]
        wait(doors, _SECONDS)
        ended = []
        for place, worker in list(self._workers.items()):
            reply, job = worker.reply(), worker.job
            if reply is None and not worker.alive:
                reply = Reply("lost", worker.how_it_died())
                self._dismiss(place)
            if reply is not None and job is not None:
                worker.job = None
                ended.append((job, reply))
        return ended

    @property
    def news(self) -> str:
        return next((worker.news for worker in self._workers.values() if worker.news), "")

    def ask_to_stop(self, force: bool) -> None:
        """Also those that do not react: they are saving, and nothing must be lost."""
        for worker in self._workers.values():
            worker.ask_to_stop()

    def close(self) -> None:
        for place in list(self._workers):
            self._dismiss(place)

    def _dismiss(self, place: int) -> None:
        self._workers.pop(place).end()
