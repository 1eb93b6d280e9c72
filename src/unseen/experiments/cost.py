"""What is left to do of a plan, and about how long that takes."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from unseen.atomic import read_json
from unseen.config import Experiment
from unseen.experiments.choose.halving import state_of
from unseen.experiments.choose.rounds import expected_share
from unseen.experiments.plan import Plan, PlannedRun
from unseen.records.folder import RunFolder
from unseen.training.checkpoints import steps_saved
from unseen.training.timing import RunTimes

Kind = tuple[str, str, str]
"""Dataset, method, backbone: what has a speed of its own."""


class Row(NamedTuple):
    """All runs of one kind."""

    kind: Kind
    planned: int
    states: Mapping[str, int]
    seconds_per_run: float
    seconds_left: float
    basis: str
    """What the seconds are derived from."""


def estimate(plan: Plan, runs: Path, measure: Callable[[Experiment], RunTimes]) -> list[Row]:
    """One row for each kind; `measure` is asked only about kinds of which no run is finished."""
    kinds: dict[Kind, list[PlannedRun]] = {}
    for run in plan.distinct:
        condition = run.condition
        kind = (condition.dataset, condition.method, condition.backbone)
        kinds.setdefault(kind, []).append(run)
    return [_row(plan, kind, own, runs, measure) for kind, own in kinds.items()]


def on_workers(rows: Iterable[Row], workers: int) -> float:
    """Seconds by the clock: the work shared out, but no run is done by two."""
    rows = [row for row in rows if row.seconds_left]
    longest = max((row.seconds_per_run for row in rows), default=0.0)
    return max(longest, sum(row.seconds_left for row in rows) / workers) if rows else 0.0


def _row(
    plan: Plan,
    kind: Kind,
    planned: Sequence[PlannedRun],
    runs: Path,
    measure: Callable[[Experiment], RunTimes],
) -> Row:
    folders = [run.folder(runs) for run in planned]
    known = [
        read_json(folder.timing)["seconds"] / _work(run)
        for run, folder in zip(planned, folders, strict=True)
        if folder.finished and folder.timing.is_file()
    ]
    if known:
        basis = f"{len(known)} finished run{'s' * (len(known) > 1)}"
        seconds = [fmean(known) * _work(run) for run in planned]
    else:
        basis, measured = "a few timed steps", measure(planned[0].experiment)
        seconds = [_from_times(run, planned[0], measured) for run in planned]
    left = [
        each * expected_share(plan, run) * _share_left(run, folder)
        for each, run, folder in zip(seconds, planned, folders, strict=True)
    ]
    states = Counter(map(state_of, folders))
    return Row(kind, _size(plan, planned), states, fmean(seconds), sum(left), basis)


def _size(plan: Plan, planned: Sequence[PlannedRun]) -> int:
    """With nested pairs, of the draws with one domain held out only one is trained."""
    if plan.sweep.halving is not None:  # all begin
        return len(planned)
    return round(sum(expected_share(plan, run) for run in planned))


def _work(run: PlannedRun) -> int:
    """Images that training sees, but for the number of domains, which is the same for all."""
    return run.steps * run.experiment.images_per_domain


def _from_times(run: PlannedRun, timed: PlannedRun, measured: RunTimes) -> float:
    """A step takes as long as it has images; evaluations do not depend on the batch."""
    batch = run.experiment.images_per_domain / timed.experiment.images_per_domain
    evaluations = math.ceil(run.steps / run.experiment.evaluate_every)
    return (
        measured.setup
        + run.steps * measured.step * batch
        + evaluations * measured.validation
        + measured.final_evaluation
    )


def _share_left(run: PlannedRun, folder: RunFolder) -> float:
    if state_of(folder) in ("finished", "stopped"):
        return 0.0
    return 1 - steps_saved(folder.checkpoint) / run.steps
