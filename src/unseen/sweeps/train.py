"""Train a plan, round after round, and merge its runs. Its state is the records on disk."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.errors import SettingsError
from unseen.results.folder import RunFolder, find_merged
from unseen.results.result import VIEWS
from unseen.settings.experiment import METRICS
from unseen.sweeps.jobs import Job, Outcome
from unseen.sweeps.ledger import run_jobs
from unseen.sweeps.merge import Choice, merge_runs, problems_of
from unseen.sweeps.plan import Condition, Plan, PlannedRun
from unseen.sweeps.rules import expected_share, rounds, state_of
from unseen.sweeps.workers import Resources, visible_devices
from unseen.training.devices import is_launched
from unseen.training.display import Display
from unseen.training.execute import stackable_groups

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_NAMES = 3
_LINE_BYTES = 4096

_BLOCK = 4096
"""Runs that are looked at together: a plan may have more than fit into memory with all settings."""

Executor = Callable[[Iterable[Job]], Mapping[Path, Outcome]]
"""Trains jobs and says how each run went, failures included: `run_jobs` with its resources."""


def resources_for(plan: Plan, options: Mapping[str, Any]) -> Resources:
    """Return what was asked for. Otherwise a run has a GPU where this machine has any, and is tried
    again as often as the sweep says; runs on several devices are driven from this process."""
    chosen = {name: value for name, value in options.items() if value is not None}
    defaults = {"gpus": float(bool(visible_devices())), "retries": plan.sweep.retries}
    resources = Resources(**defaults | chosen)
    several = any(part.experiment.devices.number > 1 for part in plan.parts)
    if is_launched() or (several and resources.workers is None and resources.on == "here"):
        return resources._replace(on="here", workers=0)
    return resources


def run_plan(
    plan: Plan,
    resources: Resources,
    console: Console,
    *,
    together: bool,
    log: tuple[str, ...] = (),
) -> dict[Path, Outcome]:
    """Train what is not finished, and show how far it is."""
    with PlanDisplay(console, plan) as display:
        executor = partial(run_jobs, resources=resources, display=display)
        return train_plan(plan, executor, together=together, log=log)


def train_plan(
    plan: Plan, executor: Executor, *, together: bool, log: tuple[str, ...] = ()
) -> dict[Path, Outcome]:
    """Train all rounds; finished runs are not trained again.

    `together`: runs from stored features that differ in numbers alone are trained in one process.
    """
    outcomes: dict[Path, Outcome] = {}
    for planned in rounds(plan):
        outcomes |= executor(_jobs(planned, together, log))
    return outcomes


def _jobs(planned: Iterable[PlannedRun], together: bool, log: tuple[str, ...]) -> Iterator[Job]:
    """Yield every run once; those that can be trained together in one job."""
    by_step: dict[int | None, dict[Path, PlannedRun]] = {}
    for run in planned:
        by_step.setdefault(run.until, {}).setdefault(run.path, run)
    for until, by_path in by_step.items():
        runs = list(by_path.values())
        for start in range(0, len(runs), _BLOCK):
            for group in _groups(runs[start : start + _BLOCK], together and until is None):
                settings, folders = (run.settings for run in group), (run.path for run in group)
                yield Job(tuple(settings), tuple(folders), until, log)


def _groups(runs: Sequence[PlannedRun], together: bool) -> Iterable[Sequence[PlannedRun]]:
    if not together:
        return ((run,) for run in runs)
    experiments = [run.experiment for run in runs]
    by_id = dict(zip(map(id, experiments), runs, strict=True))
    return [[by_id[id(each)] for each in group] for group in stackable_groups(experiments)]


class PlanDisplay(Display):
    """A bar over all steps in a terminal, and a line for each run that ends."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._plan = plan
        planned = self._planned = {run.path: run for run in plan.distinct}
        self._ended = {path for path in planned if RunFolder(path).finished}
        self._runs = plan.size
        self._failed = 0
        self._last_look = 0.0
        total = round(sum(run.steps * expected_share(plan, run) for run in planned.values()))
        self._steps_behind = sum(planned[path].steps for path in self._ended)
        resumed = sum(RunFolder(path).checkpoint.is_file() for path in planned.keys() - self._ended)
        super().__init__(console, total, "", self._steps_behind)
        self.line(
            f"{self._runs} runs planned ({len(self._ended)} finished, {resumed} to resume), "
            f"{total} steps in all"
        )
        for remark in plan.remarks:
            self.line(remark)

    def _name_of(self, path: Path) -> str:
        return self._plan.label(self._planned[path])

    def begin(self, job: Job) -> Display:
        """A job begins in this process: this is the display of its runs."""
        label = self._name_of(job.folders[0])
        self.begin_run(f"{len(self._ended) + 1}/{self._runs} {label}", self._steps_behind)
        return self

    def ended(self, path: Path, outcome: Outcome) -> None:
        """A run is finished, has failed for good, or pauses for a decision."""
        for remark in outcome.remarks:
            self.line(f"{self._name_of(path)}: {remark}")
        if outcome.state == "paused" or path in self._ended:
            return
        self._ended.add(path)
        self._steps_behind += self._planned[path].steps
        self._failed += outcome.state == "failed"
        how = f"failed: {outcome.error}" if outcome.state == "failed" else _means(path)
        self.line(f"{len(self._ended)}/{self._runs} {self._name_of(path)}: {how}")
        self._show_runs()

    def _show_runs(self) -> None:
        failed = f", {self._failed} failed" if self._failed else ""
        self.begin_run(f"{len(self._ended)}/{self._runs} runs{failed}", self._steps_behind)

    def under_way(self, jobs: Collection[Job], status: str) -> None:
        """Runs in other processes: how far they are is read from their records."""
        now = time.monotonic()
        if not jobs or now - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return
        self._last_look = now
        steps = {path: _last_step(path) for job in jobs for path in job.folders}
        going = [f"{self._name_of(path)} ({step})" for path, step in steps.items() if step]
        names = "; ".join(going[:_MOST_NAMES]) + ("; …" if len(going) > _MOST_NAMES else "")
        self._show_runs()
        if names or status:
            self.advance(self._steps_behind + sum(steps.values()), names or status)


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


def check_mergeable(plan: Plan) -> None:
    """Raise before anything trains where the runs of a plan could not be merged."""
    problems = dict.fromkeys(_why_not_merged(plan))
    if problems:
        lines = "\n  ".join(problems)
        raise SettingsError(f"these runs could not be merged afterwards:\n  {lines}")


def _why_not_merged(plan: Plan) -> Iterator[str]:
    if is_launched():
        yield "only one process can merge: train first, then give the same command without torchrun"
    if plan.sweep.pairs == "nested":
        yield "pairs: nested pairs train only one draw with one domain held out; set pairs=all"
    groups = _merged_groups(plan)
    if all(len(group) == 1 for group in groups):
        yield "there is one run for each method and domain; give several seeds, or draws"
    for group in groups:
        method = group[0].condition.method
        yield from (f"{each} ({method})" for each in problems_of(run.experiment for run in group))


def merge_plan(plan: Plan, choose: Choice, console: Console) -> Iterator[PlannedRun]:
    """Merge the runs of each method and domain: draws of one seed, or, where there is one draw,
    seeds. Each merged model is a row of its own. Those of which a run failed have to wait until the
    same command has trained it."""
    for group in _merged_groups(plan):
        states = [state_of(run.folder) for run in group]
        finished = [r for r, state in zip(group, states, strict=True) if state == "finished"]
        if len(finished) < 2 or not set(states) <= {"finished", "stopped"}:
            continue
        first = finished[0]
        identities = [run.identity for run in finished]
        output = find_merged(plan.runs, first.experiment, choose, identities).path
        with Display(console, 1, output.name) as display:
            folder = merge_runs([run.path for run in finished], output, choose, display)
        merged = replace(first, path=folder.path)
        yield replace(merged, condition=first.condition._replace(method=merged.result.label))


def _merged_groups(plan: Plan) -> list[list[PlannedRun]]:
    """Runs that become one model, each once: draws from few values may be the same run."""
    found: dict[tuple[Condition, int | None], dict[Path, PlannedRun]] = {}
    searched = {run.condition.method for run in plan.singles if run.draw > 0}
    for run in plan.singles:
        condition = run.condition
        seed = condition.seed if condition.method in searched else None
        group = found.setdefault((condition._replace(seed=0), seed), {})
        group.setdefault(run.path, run)
    return [list(group.values()) for group in found.values()]
