"""What passes between a plan and those who carry it out: jobs, means, outcomes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from unseen.config import Experiment
from unseen.errors import UnseenError


class Job(NamedTuple):
    """One run; or several that are trained together in one process, from stored features."""

    experiments: tuple[Experiment, ...]
    until: int | None = None
    """Pause at this step, with a checkpoint; empty: to the end."""


class Means(NamedTuple):
    """What each job gets, and how stubborn the executor is."""

    workers: int | None = None
    """Jobs at once on this machine; empty: as many as the cores allow."""
    cpus: float = 1
    """Cores of a job, and its threads: results depend on their number in the last bit."""
    gpus: float = 0
    """GPUs of a job; half of one is shared by two jobs. 0: it computes on the CPU."""
    retries: int = 1
    """How often a run that failed is tried again, over all commands; a higher number than before
    is how one asks for another try."""
    address: str | None = None
    """Of a running Ray cluster; empty: Ray on this machine."""


class Outcome(NamedTuple):
    """Where one run stands once its job came back."""

    path: Path
    state: Literal["finished", "paused", "failed"]
    error: str = ""


class SweepStopped(UnseenError):
    """Ctrl-C or SIGTERM: the runs that were going on have saved their state."""

    def __init__(self, signal_number: int, left: int) -> None:
        super().__init__(
            f"stopped; everything is saved, {left} runs are left.\nGo on with the same command."
        )
        self.exit_code = 128 + signal_number


Report = Callable[[Outcome], None]
"""Is told of every run as soon as it is known how it went."""
Executor = Callable[[Sequence[Job], Path, Means, Report], list[Outcome]]
"""Carries out jobs below a folder of runs; finished runs are skipped, unfinished ones resumed."""
