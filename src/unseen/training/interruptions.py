"""Ctrl-C and SIGTERM end a run after the current step, with its state saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from unseen.errors import UnseenError


class Interrupted(UnseenError):
    """The run was asked to stop and has saved its state."""

    def __init__(self, folder: Path, step: int, signal_number: int) -> None:
        super().__init__(
            f"stopped at step {step}; everything is saved.\n"
            f"Go on with the same command, or with: unseen train {folder}"
        )
        self.folder = folder
        self.step = step
        self.exit_code = 128 + signal_number

    def __reduce__(self) -> tuple:
        return Interrupted, (self.folder, self.step, self.exit_code - 128)


class StopFlag:
    """The signal that arrived, or 0."""

    signal_number = 0


@contextmanager
def stop_requests() -> Iterator[StopFlag]:
    """While this is open, a first signal sets the flag; a second Ctrl-C ends at once."""
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
