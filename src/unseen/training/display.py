"""What a person sees during a run: one bar in a terminal, plain lines elsewhere."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Self

from rich import progress
from rich.console import Console

from unseen.reports.text import shortened
from unseen.settings.experiment import METRICS, Metric

_SECONDS_BETWEEN_LINES = 15.0
_WIDE = 110  # columns that have room for everything
_NARROW_BAR = 10
_OTHERS = _NARROW_BAR + 22  # columns of bar, numbers of steps and time left


def progress_console() -> Console:
    """Returns where progress is shown if nobody named a place. A notebook calls itself a terminal,
    but keeps all that is written: it gets lines."""
    in_notebook = Console().is_jupyter
    return Console(stderr=True, force_jupyter=False, force_terminal=not in_notebook and None)


class Display:
    """A bar over all steps of one or many runs, drawn while it is open. Also usable where nothing
    should be shown."""

    def __init__(self, console: Console, total: int, label: str, done: int = 0) -> None:
        self.console = console
        wide = console.width >= _WIDE
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=None if wide else _NARROW_BAR),
            progress.MofNCompleteColumn(),
            *([progress.TimeElapsedColumn()] if wide else []),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            progress.TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=120,
        )
        self._label = label
        about = {"total": total, "completed": done, "status": ""}
        self._task = self._progress.add_task(self._shown_label, **about)
        self._total = total
        self._first = self._base = done
        self._timed_from: tuple[int, float] | None = None
        self._last_line = time.monotonic()
        self._validation = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._progress.stop()

    @property
    def _shown_label(self) -> str:
        """The end of the run's name, which leaves room for the bar and the time left."""
        name, room = re.sub(r"-[0-9a-f]{12}$", "", self._label), self.console.width // 4
        return name if len(name) <= room else f"…{name[1 - room :]}"

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """Draws nothing while another process has the terminal."""
        self._progress.stop()
        yield
        self._progress.start()

    def begin_run(self, label: str, done_before: int) -> None:
        """The next run starts; `done_before` steps of the total lie behind it."""
        self._label, self._base, self._validation = label, done_before, ""
        about = {"description": self._shown_label, "completed": done_before, "status": ""}
        self._progress.update(self._task, **about)

    def step(self, step: int, loss: float) -> None:
        """`step` steps of the current run are done."""
        self.advance(self._base + step, f"loss {loss:.3f}{self._validation}")

    def advance(self, done: int, status: str) -> None:
        """`done` steps of the total lie behind."""
        if self.console.is_terminal:
            shown = shortened(status, max(self.console.width * 3 // 4 - _OTHERS, 12))
            self._progress.update(self._task, completed=done, status=shown)
            return
        now = time.monotonic()
        if self._timed_from is None or done == self._first:
            self._timed_from = (done, now)  # before that, images and features took their time
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            text = f"{self._label}: step {done}/{self._total}, {status}"
            since, started = self._timed_from
            if done > since:
                left = (now - started) / (done - since) * (self._total - done)
                text += f", {timedelta(seconds=round(left))} left"
            self.line(text)

    def preparing(self, doing: str, done: int, total: int) -> None:
        """Shows that images are decoded, or features computed, before the first step."""
        self._progress.update(self._task, status=f"{doing} images {done}/{total}")

    def evaluation(self, value: float, metric: Metric) -> None:
        """The mean over domains of what counts, on the source validation images."""
        name = "" if metric == "accuracy" else f" {METRICS[metric]}"
        self._validation = f", validation{name} {value:.1%}"

    def line(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


class SilentDisplay(Display):
    """Shows nothing, and keeps the lines that somebody should read."""

    def __init__(self, on_status: Callable[[str], None] | None = None) -> None:
        super().__init__(Console(quiet=True), 1, "")
        self.remarks: list[str] = []
        self._on_status = on_status

    def preparing(self, doing: str, done: int, total: int) -> None:
        if self._on_status is not None:
            self._on_status(f"{doing} images {done}/{total}")

    def advance(self, done: int, status: str) -> None:
        pass

    def line(self, text: str) -> None:
        self.remarks.append(text)
