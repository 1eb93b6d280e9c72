"""What a person sees while a plan is trained: how far it is, and how each run ended."""

import json
import os
import time
from collections.abc import Collection
from pathlib import Path

from rich.console import Console

from unseen.experiments.choose.rounds import expected_share
from unseen.experiments.plan import Plan
from unseen.experiments.run.jobs import Job, Outcome
from unseen.records.folder import RunFolder
from unseen.records.views import VIEWS
from unseen.settings.metrics import METRICS
from unseen.training.display import Display

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_NAMES = 3
_LINE_BYTES = 4096


class PlanDisplay(Display):
    """A bar over all steps in a terminal, and a line for each run that ends."""

    def __init__(self, console: Console, plan: Plan, runs: Path) -> None:
        planned = {run.folder(runs).path: run for run in plan.distinct}
        self._labels = {path: plan.label(run) for path, run in planned.items()}
        self._steps = {path: run.steps for path, run in planned.items()}
        self._ended = {path for path in planned if RunFolder(path).finished}
        self._runs = plan.size
        self._failed = 0
        self._last_look = 0.0
        total = round(sum(run.steps * expected_share(plan, run) for run in planned.values()))
        resumed = sum(RunFolder(path).checkpoint.is_file() for path in planned.keys() - self._ended)
        super().__init__(console, total, "", self._behind)
        self.line(
            f"{self._runs} runs planned ({len(self._ended)} finished, {resumed} to resume), "
            f"{total} steps in all"
        )
        for remark in plan.remarks:
            self.line(remark)

    @property
    def _behind(self) -> int:
        return sum(self._steps[path] for path in self._ended)

    def begin(self, job: Job) -> Display:
        """A job begins in this process: this is the display of its runs."""
        label = self._labels[job.folders[0]]
        self.begin_run(f"{len(self._ended) + 1}/{self._runs} {label}", self._behind)
        return self

    def ended(self, outcome: Outcome) -> None:
        """A run is finished, has failed for good, or pauses for a decision."""
        for remark in outcome.remarks:
            self.line(f"{self._labels[outcome.path]}: {remark}")
        if outcome.state == "paused" or outcome.path in self._ended:
            return
        self._ended.add(outcome.path)
        self._failed += outcome.state == "failed"
        how = f"failed: {outcome.error}" if outcome.state == "failed" else _means(outcome.path)
        self.line(f"{len(self._ended)}/{self._runs} {self._labels[outcome.path]}: {how}")
        self._show_runs()

    def _show_runs(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        self.begin_run(f"{len(self._ended)}/{self._runs} runs{failed}", self._behind)

    def under_way(self, jobs: Collection[Job], news: str) -> None:
        """Runs in other processes: how far they are is read from their records."""
        now = time.monotonic()
        if not jobs or now - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return
        self._last_look = now
        steps = {path: _last_step(path) for job in jobs for path in job.folders}
        going = [f"{self._labels[path]} ({step})" for path, step in steps.items() if step]
        names = "; ".join(going[:_MOST_NAMES]) + ("; …" if len(going) > _MOST_NAMES else "")
        self._show_runs()
        if names or news:
            self.advance(self._behind + sum(steps.values()), names or news)


def _means(path: Path) -> str:
    result = RunFolder(path).read_result()
    means = {
        about.title: result.mean(result.selection, view)
        for view, about in VIEWS.items()
        if view != "known_domain"
    }
    texts = [f"{title} {mean:.1%}" for title, mean in means.items() if mean is not None]
    name = "" if result.metric == "accuracy" else f" ({METRICS[result.metric]})"
    return ", ".join(texts) + name


def _last_step(path: Path) -> int:
    """Of the last record that is written completely; 0 where there is none."""
    try:
        with RunFolder(path).metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE_BYTES))
            lines = file.read().split(b"\n")[:-1]
        return json.loads(lines[-1])["step"] if lines else 0
    except (OSError, ValueError, KeyError):
        return 0
