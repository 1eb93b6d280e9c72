"""Comparisons and sweeps, from their settings to their tables.

A comparison holds out one domain after the other, for every method and seed; a sweep does so for
several draws of settings. Runs are trained round after round, then merged; the state is the records
on disk.
"""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from rich.console import Console

from unseen.errors import SettingsError, UnseenError
from unseen.reports.trackers import Subject, Trackers, choose_trackers
from unseen.results.folder import RunFolder, find_merged
from unseen.results.result import VIEWS
from unseen.settings.experiment import METRICS
from unseen.settings.typed import Overrides, SweepKeys
from unseen.sweeps.draws import Condition, PlannedRun
from unseen.sweeps.ledger import run_jobs
from unseen.sweeps.merge import Choice, merge_runs, problems_of
from unseen.sweeps.plan import Plan, plan_sweep
from unseen.sweeps.rules import rounds, state_of
from unseen.sweeps.sweep_file import load_sweep, make_comparison
from unseen.sweeps.tables import Comparison, apply_rules
from unseen.sweeps.workers import Job, Outcome, Resources, visible_devices
from unseen.training.devices import is_first_process, is_launched
from unseen.training.display import Display, progress_console
from unseen.training.execute import stackable_groups

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_NAMES = 3
_LINE_BYTES = 4096

_BLOCK = 4096
"""Runs that are looked at together: a plan may have more than fit into memory with all settings."""

Executor = Callable[[Iterable[Job]], Mapping[Path, Outcome]]
"""Trains jobs and says how each run went, failures included: `run_jobs` with its resources."""


def compare(
    dataset: str,
    *,
    methods: str | Sequence[str] = ("aggregate", "multihead", "dmg"),
    seeds: str | Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    workers: int | None = 0,
    merge: Choice | None = None,
    upper_bound: bool = False,
    console: Console | None = None,
    **overrides: Unpack[Overrides],
) -> Comparison:
    """Train on all domains but one, test on that one; every domain, method and seed.

    Each method starts from its recipe `dataset/method`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; a run that fails does not keep the others
    from training, and is named in the error that is raised at the end. The tables of the runs' own
    selection rule are in `shown`, those of every rule in `tables`.

    Names may be given as a list or as text with commas, `all` being every method; `unseen`
    restricts which domains are held out, one after the other, or several at once (`a+b`). `workers`
    is how many processes train (None: as many as there are cores); 0 trains in this process. A
    script that asks for workers has to guard its own code by `if __name__ == "__main__":`, because
    they import it. `merge` adds a row for each method: one model for each domain, the seeds merged
    as `unseen.merge` does (`all` or `greedy`). `upper_bound` adds a row that is trained on labels
    of the unseen domain, too.
    """
    compared = make_comparison(dataset, methods, seeds, backbone, unseen, overrides, upper_bound)
    plan, options = plan_sweep(compared, "", runs), {"workers": workers}
    results = run_sweep(plan, options, console, together=False, log=log, merge=merge)
    if results.failed:
        raise UnseenError(results.failures)
    return results


def sweep(
    source: str | Path,
    *,
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    workers: int | None = 0,
    merge: Choice | None = None,
    console: Console | None = None,
    **overrides: Unpack[SweepKeys],
) -> Comparison:
    """Train all runs of a sweep, and apply every selection rule to its draws.

    `source` is a sweep file or the name of a shipped one; overrides are its keys:
    `sweep("digits", draws=5, settings={"steps": 100})`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; runs that failed are in `missing`.

    `workers` and `log` are as in `compare`; `merge` adds a row for each method: the draws of a seed
    (without draws: the seeds) merged as `unseen.merge` does (`all` or `greedy`).
    """
    plan = plan_sweep(load_sweep(source, overrides), str(source), runs)
    return run_sweep(plan, {"workers": workers}, console, together=True, log=log, merge=merge)


def run_sweep(
    plan: Plan,
    options: Mapping[str, Any],
    console: Console | None = None,
    *,
    together: bool,
    log: str | Sequence[str] = (),
    merge: Choice | None = None,
) -> Comparison:
    """Train what is not finished, and write the tables of what is.

    `options` are fields of `Resources`, None standing for the default. With `together`, runs on
    stored features are trained together; one by one they equal those of `unseen train` to the last
    bit, and each has its own trackers.
    """
    trackers, console = choose_trackers(log), console or progress_console()
    if merge:
        check_mergeable(plan)
    if plan.is_comparison:  # the same command tries again what failed before
        for run in plan.singles:
            run.folder.failure.unlink(missing_ok=True)
    together = together and not trackers
    resources = resources_for(plan, options)
    outcomes = run_plan(plan, resources, console, together=together, log=trackers)
    merged = list(merge_plan(plan, merge, console)) if merge else []
    results = apply_rules(plan, outcomes, merged)
    if is_first_process() and results.chosen:
        results.write()
        if trackers:  # an entry of the tables beside those of the runs
            home = results.home.name
            subject = Subject(home, home[-8:], {"tables": home}, plan.runs)
            warn = partial(console.print, highlight=False, markup=False, soft_wrap=True)
            opened = Trackers(trackers, subject, warn)
            for table in results.shown:
                opened.table(table)
            opened.close(finished=True)
    return results


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
            block = runs[start : start + _BLOCK]
            groups = [[run] for run in block]
            if together and until is None:
                experiments = [run.experiment for run in block]
                of = dict(zip(map(id, experiments), block, strict=True))
                groups = [[of[id(each)] for each in g] for g in stackable_groups(experiments)]
            for group in groups:
                settings, folders = (run.settings for run in group), (run.path for run in group)
                yield Job(tuple(settings), tuple(folders), until, log)


class PlanDisplay(Display):
    """A bar over all steps in a terminal, and a line for each run that ends."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._plan = plan
        planned = self._planned = {run.path: run for run in plan.distinct}
        self._ended = {path for path in planned if RunFolder(path).finished}
        self._runs = len(planned)
        self._failed = 0
        self._last_look = 0.0
        total = sum(run.steps for run in planned.values())
        self._steps_behind = sum(planned[path].steps for path in self._ended)
        resumed = sum(RunFolder(path).checkpoint.is_file() for path in planned.keys() - self._ended)
        super().__init__(console, total, "", self._steps_behind)
        self.line(
            f"{self._runs} runs planned ({len(self._ended)} finished, {resumed} to resume), "
            f"{'at most ' * (plan.sweep.halving is not None)}{total} steps in all"
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
    result, texts = RunFolder(path).read_result(), list[str]()
    for view in ("out_of_domain", "in_domain"):
        mean = result.mean(result.selection, view)
        texts += [] if mean is None else [f"{VIEWS[view].title} {mean:.1%}"]
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
    problems: list[str] = []
    if is_launched():
        problems.append("only one process can merge: train first, then merge without torchrun")
    groups = _merged_groups(plan)
    if all(len(group) == 1 for group in groups):
        problems.append("there is one run for each method and domain; give several seeds, or draws")
    for group in groups:
        found = problems_of(run.experiment for run in group)
        problems += (f"{each} ({group[0].condition.method})" for each in found)
    if problems:
        lines = "\n  ".join(dict.fromkeys(problems))
        raise SettingsError(f"these runs could not be merged afterwards:\n  {lines}")


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
