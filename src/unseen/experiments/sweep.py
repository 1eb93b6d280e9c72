"""Carry out a sweep, round after round. Its state is the records on disk."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from unseen.config import Experiment, identity
from unseen.experiments.choose.rounds import Errand, rounds
from unseen.experiments.plan import Plan
from unseen.experiments.run.jobs import Executor, Job, Means, Outcome, Report


class Way(NamedTuple):
    """How a sweep is carried out."""

    executor: Executor
    means: Means
    together: bool = True
    """Train runs that differ in numbers alone in one process, where they allow it."""


def carry_out_sweep(plan: Plan, runs: Path, way: Way, report: Report) -> list[Outcome]:
    """All rounds; how each run went, failures included. Finished runs are not trained again."""
    outcomes: dict[Path, Outcome] = {}
    for errands in rounds(plan, runs):
        jobs = make_jobs(errands, way.together)
        for outcome in way.executor(jobs, runs, way.means, report):
            outcomes[outcome.path] = outcome
    return list(outcomes.values())


def make_jobs(errands: Iterable[Errand], together: bool) -> list[Job]:
    """Every run once; those that can be trained together in one job."""
    by_step: dict[int | None, dict[str, Experiment]] = {}
    for errand in errands:
        runs = by_step.setdefault(errand.until, {})
        runs.setdefault(identity(errand.trial.experiment), errand.trial.experiment)
    return [
        Job(group, until)
        for until, experiments in by_step.items()
        for group in _groups(list(experiments.values()), together and until is None)
    ]


def _groups(experiments: Sequence[Experiment], together: bool) -> list[tuple[Experiment, ...]]:
    if not together:
        return [(experiment,) for experiment in experiments]
    from unseen.training.stacked.groups import stackable_groups

    return stackable_groups(experiments)
