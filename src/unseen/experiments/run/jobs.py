"""What passes between a plan and the processes that train it: jobs, resources, outcomes."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from unseen.errors import UnseenError

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
