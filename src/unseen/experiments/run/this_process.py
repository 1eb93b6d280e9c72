"""Jobs in this process, one after the other: nothing to start, but a crash ends the command."""

import time
from collections.abc import Callable

from unseen.data.opening import OpenDatasets
from unseen.experiments.run.jobs import Job, Reply
from unseen.experiments.run.train_job import failed, train_runs
from unseen.training.devices import is_launched
from unseen.training.display import Display
from unseen.training.interruptions import Interrupted

_SECONDS = 0.2


class ThisProcess:
    """A pool of one, which trains a job while it is started."""

    news = ""

    def __init__(self, begin: Callable[[Job], Display]) -> None:
        self._begin = begin
        self._datasets = OpenDatasets()
        self._ended: list[tuple[Job, Reply]] = []

    @property
    def has_room(self) -> bool:
        return not self._ended

    def start(self, job: Job) -> None:
        try:
            train_runs(job, self._begin(job), self._datasets)
            reply = Reply("done")
        except Interrupted:  # the state is saved, and it says how to continue
            raise
        except Exception as error:
            if is_launched():  # one of several processes: the others would wait for this one
                raise
            reply = failed(job, error)
        self._ended.append((job, reply))

    def wait(self) -> list[tuple[Job, Reply]]:
        if not self._ended:
            time.sleep(_SECONDS)
        ended, self._ended = self._ended, []
        return ended

    def ask_to_stop(self, force: bool) -> None:
        """Nothing is under way between two jobs."""
