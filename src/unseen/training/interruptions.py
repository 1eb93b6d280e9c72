"""Why a run ends early: by Ctrl-C or SIGTERM, its state saved after a step, or by divergence."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unseen.errors import UnseenError
from unseen.settings.experiment import Experiment


class Interrupted(UnseenError):
    """The run was asked to stop. Alone it has saved its state, in a stack it starts over."""

    def __init__(self, folder: Path, step: int, signal_number: int, alone: bool = True) -> None:
        super().__init__(
            f"stopped at step {step}; everything is saved.\n"
            f"Continue with the same command, or with: unseen train {folder}"
            if alone
            else f"stopped at step {step} of runs that train together, which will start over: give "
            f"the same command again. The first of them is {folder}"
        )
        self.exit_code = 128 + signal_number
        self._arguments = (folder, step, signal_number, alone)

    def __reduce__(self) -> tuple[type["Interrupted"], tuple[Path, int, int, bool]]:
        return Interrupted, self._arguments


class StopFlag:
    """The signal that arrived, or 0."""

    signal_number = 0


@contextmanager
def stop_requests() -> Iterator[StopFlag]:
    """Within this context, a first signal sets the flag; a second Ctrl-C ends at once."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # only the main thread can be told of signals
        return

    def remember(number: int, frame: FrameType | None) -> None:
        if flag.signal_number and number == signal.SIGINT:
            raise KeyboardInterrupt
        flag.signal_number = number

    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember) for number in watched}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def loss_diverged(
    experiment: Experiment, folder: Path, step: int, record: Mapping[str, float]
) -> UnseenError:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in record.items())
    return _diverged(experiment, folder, f"the loss is not finite at step {step} ({parts})")


def weights_diverged(experiment: Experiment, folder: Path, step: int) -> UnseenError:
    """An infinite gradient spoils the weights a step before the loss shows it."""
    return _diverged(experiment, folder, f"the weights are not finite after step {step}")


def _diverged(experiment: Experiment, folder: Path, what: str) -> UnseenError:
    return UnseenError(
        f"{what}.\nMost often the learning rate is too high: try optimizer.lr="
        f"{experiment.optimizer.lr / 10:g} or clip_gradient=1. "
        f"The last good checkpoint stays in {folder}."
    )
