"""Train a plan, round after round. Its state is the records on disk."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from unseen.results.folder import RunFolder, find_run
from unseen.results.result import VIEWS
from unseen.settings.experiment import METRICS, Experiment, complete_settings, identity
from unseen.sweeps.jobs import Job, Outcome, Resources
from unseen.sweeps.plan import Plan, PlannedRun
from unseen.sweeps.rules import expected_share, rounds
from unseen.sweeps.run_jobs import run_jobs
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


Executor = Callable[[Sequence[Job]], list[Outcome]]
"""Trains jobs and says how each run went, failures included: `run_jobs` with its resources."""


def run_plan(
    plan: Plan,
    runs: Path,
    resources: Resources,
    console: Console | None = None,
    *,
    together: bool,
    log: tuple[str, ...] = (),
) -> list[Outcome]:
    """Train what is not finished, and show how far it is."""
    with PlanDisplay(console or Console(stderr=True), plan, runs) as display:
        executor = partial(run_jobs, resources=resources, watcher=display)
        return train_plan(plan, runs, executor, together=together, log=log)


def train_plan(
    plan: Plan, runs: Path, executor: Executor, *, together: bool, log: tuple[str, ...] = ()
) -> list[Outcome]:
    """All rounds; finished runs are not trained again.

    `together`: runs from stored features that differ in numbers alone are trained in one process.
    """
    outcomes: dict[Path, Outcome] = {}
    for planned in rounds(plan, runs):
        for outcome in executor(_jobs(planned, runs, together, log)):
            outcomes[outcome.path] = outcome
    return list(outcomes.values())


def _jobs(
    planned: Iterable[PlannedRun], runs: Path, together: bool, log: tuple[str, ...]
) -> list[Job]:
    """Every run once; those that can be trained together in one job."""
    by_step: dict[int | None, dict[str, Experiment]] = {}
    for run in planned:
        by_step.setdefault(run.until, {}).setdefault(identity(run.experiment), run.experiment)
    return [
        Job(
            tuple(complete_settings(experiment) for experiment in group),
            tuple(find_run(runs, experiment).path for experiment in group),
            until,
            log,
        )
        for until, experiments in by_step.items()
        for group in _groups(list(experiments.values()), together and until is None)
    ]


def _groups(experiments: Sequence[Experiment], together: bool) -> list[tuple[Experiment, ...]]:
    if not together:
        return [(experiment,) for experiment in experiments]
    from unseen.training.stacked.groups import stackable_groups

    return stackable_groups(experiments)
