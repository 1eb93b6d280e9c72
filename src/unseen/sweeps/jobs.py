"""One job in one process: what every worker does, on this machine and on Ray.

A worker has to react to signals before torch is loaded: it is imported when there is work.
"""

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unseen.errors import UnseenError
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.recipes import build_experiment

if TYPE_CHECKING:
    from unseen.data.dataset import OpenDatasets
    from unseen.training.display import Display


class Job(NamedTuple):
    """One run; or several that are trained together in one process, from stored features.

    Plain data, which can travel to another process or machine.
    """

    settings: tuple[Mapping[str, Any], ...]
    folders: tuple[Path, ...]
    until: int | None = None
    """Pause at this step, with a checkpoint; empty: train to the end."""
    log: tuple[str, ...] = ()
    """Trackers that get the records, too."""

    @property
    def one_by_one(self) -> "list[Job]":
        return [
            self._replace(settings=(settings,), folders=(folder,))
            for settings, folder in zip(self.settings, self.folders, strict=True)
        ]


class Reply(NamedTuple):
    """What a worker says about a job; its results are in the records.

    `busy`: another process trains the run; `stopped`: a signal arrived, and the state is saved;
    `lost`: the process ended without a reply.
    """

    state: Literal["done", "failed", "busy", "stopped", "lost"]
    error: str = ""
    remarks: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """Where one run stands once its job has ended."""

    path: Path
    state: Literal["finished", "paused", "failed"]
    error: str = ""
    remarks: tuple[str, ...] = ()


class Trainer:
    """Trains one job after another; datasets stay open between them."""

    def __init__(self, threads: int) -> None:
        import torch

        from unseen.data.dataset import OpenDatasets

        torch.set_num_threads(threads)
        self._datasets = OpenDatasets()

    def train(self, job: Job, on_status: Callable[[str], None] | None = None) -> Reply:
        """Errors are kept in the record of their run, and come back; `on_status` gets what takes
        long before the first step."""
        from unseen.training.display import SilentDisplay
        from unseen.training.interruptions import Interrupted

        display = SilentDisplay(on_status)
        try:
            train_job(job, display, self._datasets)
            reply = Reply("done")
        except Interrupted as error:
            reply = Reply("stopped", str(error))
        except Exception as error:
            reply = failed(job, error)
        return reply._replace(remarks=tuple(display.remarks))


def train_job(job: Job, display: "Display", datasets: "OpenDatasets") -> None:
    """Trains all runs of a job, to their end or to the step at which they pause."""
    from unseen.training.execute import execute, train_together

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
