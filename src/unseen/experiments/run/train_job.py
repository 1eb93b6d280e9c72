"""One job in one process: what every worker does, on this machine and on Ray."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unseen.errors import UnseenError
from unseen.experiments.run.jobs import Job, Reply
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunBusy, RunFolder

if TYPE_CHECKING:  # they bring torch, and a worker has to react to signals before that
    from unseen.data.opening import OpenDatasets
    from unseen.training.display import Display


class Origin(NamedTuple):
    """Where and how the command was given: processes that it did not start have to be told."""

    folder: str
    command: tuple[str, ...]

    @staticmethod
    def here() -> "Origin":
        return Origin(str(Path.cwd()), tuple(sys.argv))

    def adopt(self) -> None:
        """From now on relative paths and the recorded command are those of the command."""
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        sys.argv = list(self.command)


class Trainer:
    """Trains one job after another; datasets stay open between them."""

    def __init__(self, threads: int) -> None:
        import torch

        from unseen.data.opening import OpenDatasets

        torch.set_num_threads(threads)
        self._datasets = OpenDatasets()

    def train(self, job: Job, tell: Callable[[str], None] | None = None) -> Reply:
        """Errors are kept in the record of their run, and come back; `tell` is told what takes
        long before the first step."""
        from unseen.training.display import SilentDisplay
        from unseen.training.interruptions import Interrupted

        display = SilentDisplay(tell)
        try:
            train_runs(job, display, self._datasets)
            reply = Reply("done")
        except Interrupted as error:
            reply = Reply("stopped", str(error))
        except Exception as error:
            reply = failed(job, error)
        return reply._replace(remarks=tuple(display.remarks))


def train_runs(job: Job, display: "Display", datasets: "OpenDatasets") -> None:
    """All runs of a job, to their end or to the step at which they pause."""
    from unseen.training.execute import execute
    from unseen.training.stacked.train import train_together

    experiments = [build_experiment(settings) for settings in job.settings]
    folders = [RunFolder(path) for path in job.folders]
    if len(experiments) > 1:
        train_together(experiments, folders, display, datasets)
    else:
        execute(experiments[0], folders[0], display, job.log, job.until, datasets)


def failed(job: Job, error: Exception) -> Reply:
    """To be called while the error is handled: its trace is written beside the run's records."""
    described = str(error) if isinstance(error, UnseenError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RunBusy):
        return Reply("busy", described)
    if len(job.folders) == 1:  # which of several is at fault shows when they are trained alone
        folder = RunFolder(job.folders[0])
        trace = traceback.format_exc()
        try:
            with folder.locked():
                with suppress(UnseenError):  # settings may not hold in this process
                    folder.create(build_experiment(job.settings[0]))
                folder.write_failure(described, trace)
        except RunBusy as busy:
            return Reply("busy", str(busy))
    return Reply("failed", described)
