"""One job in one process: what every worker does, on this machine and on Ray."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from unseen.errors import UnseenError

if TYPE_CHECKING:
    from unseen.training.display import Display
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.recipes import build_experiment

if TYPE_CHECKING:  # they bring torch, and a worker has to react to signals before that
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


class Resources(NamedTuple):
    """Where jobs are trained, with what, and how often a failed one is tried again."""

    on: Literal["here", "ray"] = "here"
    workers: int | None = None
    """Jobs at once on this machine; empty: as many as the cores allow; 0: in this process."""
    cpus: float = 1
    """Cores of a job, and its threads: results depend on their number in the last bit."""
    gpus: float = 0
    """GPUs of a job; half of one is shared by two jobs. 0: it computes on the CPU."""
    retries: int = 1
    """How often a run that failed is tried again."""
    address: str | None = None
    """Of a running Ray cluster; empty: Ray on this machine."""

    @property
    def threads(self) -> int:
        """Of one job. The same everywhere, so that results are the same."""
        return max(1, int(self.cpus))


class Watcher(Protocol):
    """Is told how the jobs get on."""

    def begin(self, job: Job) -> "Display":
        """A job begins in this process, and shows its steps there."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """It is known how a run went."""

    def under_way(self, jobs: Collection[Job], news: str) -> None:
        """These have been started; called again and again."""


class Stopped(UnseenError):
    """Ctrl-C or SIGTERM: the runs that were under way have saved their state."""

    def __init__(self, signal_number: int, left: int) -> None:
        super().__init__(
            f"stopped; everything is saved, {left} runs are left.\nContinue with the same command."
        )
        self.exit_code = 128 + signal_number


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

        from unseen.data.dataset import OpenDatasets

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
