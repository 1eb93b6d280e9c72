"""Train a plan, round after round. Its state is the records on disk."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from unseen.config import Experiment, complete_settings, identity
from unseen.experiments.choose.rounds import rounds
from unseen.experiments.plan import Plan, PlannedRun
from unseen.experiments.progress import PlanDisplay
from unseen.experiments.run.jobs import Job, Outcome, Resources
from unseen.experiments.run.run_jobs import run_jobs
from unseen.records.folder import run_name

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
            tuple(runs / run_name(experiment) for experiment in group),
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
