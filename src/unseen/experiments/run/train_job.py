"""One job in one process: what every worker does, here and on Ray."""

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from unseen.config import Experiment
from unseen.errors import UnseenError
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunBusy, RunFolder


class Order(NamedTuple):
    """A job as plain data, which can travel to another process or machine."""

    settings: tuple[Mapping[str, Any], ...]
    folders: tuple[str, ...]
    until: int | None
    threads: int


class Answer(NamedTuple):
    """How it went. What was reached is in the records; this says what to do next."""

    state: Literal["done", "failed", "busy", "stopped"]
    error: str = ""


class Origin(NamedTuple):
    """Where and how the command was given: what a process that it did not start has to be told."""

    folder: str
    command: tuple[str, ...]

    @staticmethod
    def here() -> "Origin":
        return Origin(str(Path.cwd()), tuple(sys.argv))

    def take_over(self) -> None:
        """Relative paths and the recorded command are then those of the command."""
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        sys.argv = list(self.command)


def carry_out(order: Order) -> Answer:
    """Train what the order names. An error is kept in the record of its run, and comes back.

    `busy`: another process has the run; `stopped`: a signal arrived, and the state is saved.
    """
    from unseen.training.interruptions import Interrupted

    folders = [RunFolder(Path(path)) for path in order.folders]
    experiments: list[Experiment] = []
    try:
        _limit_threads(order.threads)
        experiments += [build_experiment(settings) for settings in order.settings]
        _train(experiments, folders, order.until)
    except RunBusy as error:
        return Answer("busy", str(error))
    except Interrupted as error:
        return Answer("stopped", str(error))
    except Exception as error:
        described = _describe(error)
        if len(folders) > 1:  # which of them is at fault shows when they are trained one by one
            return Answer("failed", described)
        return _keep_failure(experiments, folders[0], described)
    return Answer("done")


def _train(experiments: list[Experiment], folders: list[RunFolder], until: int | None) -> None:
    from rich.console import Console

    from unseen.training.display import Display
    from unseen.training.execute import execute
    from unseen.training.stacked.train import train_together

    with Display(Console(quiet=True), 1, "") as display:
        if len(experiments) == 1:
            execute(experiments[0], folders[0], display, until=until)
        else:
            train_together(experiments, folders, display)


def _limit_threads(threads: int) -> None:
    """The same number everywhere: sums depend on it in the last bit."""
    import torch

    torch.set_num_threads(threads)


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, UnseenError) else f"{type(error).__name__}: {error}"


def _keep_failure(experiments: list[Experiment], folder: RunFolder, error: str) -> Answer:
    trace = traceback.format_exc()
    try:
        with folder.locked():
            for experiment in experiments:
                folder.create(experiment)
            folder.write_failure(error, trace)
    except RunBusy as busy:
        return Answer("busy", str(busy))
    return Answer("failed", error)
