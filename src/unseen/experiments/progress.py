"""What a person sees while a sweep goes on: how far it is, what failed, what is under way."""

import time
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from unseen.experiments.plan import Plan
from unseen.experiments.run.jobs import Outcome
from unseen.records.folder import RunFolder
from unseen.training.display import Drawn

_FRESH_SECONDS = 60.0
_MOST_NAMES = 3


class SweepDisplay(Drawn):
    """A bar over all runs in a terminal; elsewhere a line for each run that came to its end."""

    def __init__(self, console: Console, plan: Plan, runs: Path) -> None:
        self._console = console
        self._labels = {trial.folder(runs).path: str(trial) for trial in plan.distinct}
        self._ended: set[Path] = set()
        self._failed = 0
        self._total = plan.size
        self._progress = Progress(
            TextColumn("runs"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            _UnderWay(self._labels, self._ended),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=3600,
        )
        self._task = self._progress.add_task("runs", total=self._total, news="")

    def report(self, outcome: Outcome) -> None:
        """A run came back: finished, failed for good, or paused for a decision."""
        if outcome.state == "paused" or outcome.path in self._ended:
            return
        self._ended.add(outcome.path)
        self._failed += outcome.state == "failed"
        news = f"{self._failed} failed" if self._failed else ""
        self._progress.update(self._task, completed=len(self._ended), news=news)
        if outcome.state == "failed" or not self._console.is_terminal:
            label = self._labels.get(outcome.path, outcome.path.name)
            what = f"{label}: {outcome.state}"
            what += f": {outcome.error.partition(chr(10))[0]}" if outcome.error else ""
            self._console.print(
                f"{len(self._ended)}/{self._total} {what}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


class _UnderWay(TextColumn):
    """Failures so far, and the runs that have written something of late, wherever they are."""

    max_refresh = 2.0

    def __init__(self, labels: dict[Path, str], ended: set[Path]) -> None:
        super().__init__("{task.fields[news]}")
        self._labels, self._ended = labels, ended

    def render(self, task: Task) -> Text:
        since = time.time() - _FRESH_SECONDS
        going = [
            label
            for path, label in self._labels.items()
            if path not in self._ended and _written(RunFolder(path)) > since
        ]
        names = "; ".join(going[:_MOST_NAMES]) + ("; …" if len(going) > _MOST_NAMES else "")
        parts = [task.fields["news"], f"now {names}" if names else ""]
        return Text(", ".join(part for part in parts if part))


def _written(folder: RunFolder) -> float:
    try:
        return folder.metrics.stat().st_mtime
    except FileNotFoundError:
        return 0.0
