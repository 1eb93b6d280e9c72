"""One job in one process: what every worker does, on this machine and on Ray.

A worker has to react to signals before torch is loaded: it is imported when there is work.
"""

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unseen.data.dataset import OpenDatasets
from unseen.errors import UnseenError
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.recipes import build_experiment

if TYPE_CHECKING:
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


class Outcome(NamedTuple):
    """How a job ended, or where a run stands once its job has ended.

    Of a job, `done` says that its records tell how it went; `busy`: another process trains the run;
    `stopped`: a signal arrived, and the state is saved; `lost`: the process ended without a word.
    """

    state: Literal["finished", "paused", "failed", "done", "busy", "stopped", "lost"]
    error: str = ""
    remarks: tuple[str, ...] = ()


def train_silently(
    job: Job,
    threads: int,
    datasets: OpenDatasets,
    on_status: Callable[[str], None] | None = None,
) -> Outcome:
    """Train a job in a worker. Errors are kept in the record of their run, and come back;
    `on_status` gets what takes long before the first step."""
    import torch

    from unseen.training.devices import Interrupted
    from unseen.training.display import SilentDisplay

    torch.set_num_threads(threads)
    display = SilentDisplay(on_status)
    try:
        train_job(job, display, datasets)
        outcome = Outcome("done")
    except Interrupted as error:
        outcome = Outcome("stopped", str(error))
    except Exception as error:
        outcome = failed(job, error)
    return outcome._replace(remarks=tuple(display.remarks))


def train_job(job: Job, display: "Display", datasets: OpenDatasets) -> None:
    """Train all runs of a job, to their end or to the step at which they pause."""
    from unseen.training.execute import execute, train_together

    experiments = [build_experiment(settings) for settings in job.settings]
    folders = [RunFolder(path) for path in job.folders]
    if len(experiments) > 1:
        train_together(experiments, folders, display, datasets)
    else:
        execute(experiments[0], folders[0], display, job.log, job.until, datasets)


def failed(job: Job, error: Exception) -> Outcome:
    """Write the error's trace beside the run's records; to be called while it is handled."""
    described = str(error) if isinstance(error, UnseenError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RunBusy):
        return Outcome("busy", described)
    if len(job.folders) == 1:  # which of several is at fault shows when they are trained alone
        folder = RunFolder(job.folders[0])
        trace = traceback.format_exc()
        try:
            with folder.locked():
                with suppress(UnseenError):  # settings may not hold in this process
                    folder.create(build_experiment(job.settings[0]))
                folder.write_failure(described, trace)
        except RunBusy as busy:
            return Outcome("busy", str(busy))
    return Outcome("failed", described)
