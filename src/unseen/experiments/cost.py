"""What a sweep has still to do, and about how long that takes."""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from unseen.atomic import read_json
from unseen.config import Experiment
from unseen.experiments.choose.halving import is_stopped, kept, rungs
from unseen.experiments.plan import Plan, Trial
from unseen.records.folder import RunFolder
from unseen.training.checkpoints import steps_saved
from unseen.training.execute import length
from unseen.training.probe import Probe

Kind = tuple[str, str, str]
"""Dataset, method, backbone: what has a speed of its own."""


class Row(NamedTuple):
    """All runs of one kind."""

    kind: Kind
    runs: int
    finished: int
    begun: int
    stopped: int
    failed: int
    seconds_per_run: float
    seconds_left: float
    basis: str
    """What the seconds stand on."""


def estimate(plan: Plan, runs: Path, measure: Callable[[Experiment], Probe]) -> list[Row]:
    """One row for each kind; `measure` is asked only about kinds of which no run is finished."""
    kinds: dict[Kind, list[Trial]] = {}
    for trial in plan.distinct:
        place = trial.place
        kinds.setdefault((place.dataset, place.method, place.backbone), []).append(trial)
    return [_row(plan, kind, trials, runs, measure) for kind, trials in kinds.items()]


def on_workers(rows: Iterable[Row], workers: int) -> float:
    """Seconds by the clock: the work shared out, but no run is done by two."""
    rows = [row for row in rows if row.seconds_left]
    longest = max((row.seconds_per_run for row in rows), default=0.0)
    return max(longest, sum(row.seconds_left for row in rows) / workers) if rows else 0.0


def _row(
    plan: Plan,
    kind: Kind,
    trials: Sequence[Trial],
    runs: Path,
    measure: Callable[[Experiment], Probe],
) -> Row:
    folders = [trial.folder(runs) for trial in trials]
    paces = [_pace(trial, folder) for trial, folder in zip(trials, folders, strict=True)]
    known = [pace for pace in paces if pace is not None]
    if known:
        pace, basis = fmean(known), f"{len(known)} finished runs"
        seconds = [pace * _work(trial.experiment) for trial in trials]
    else:
        first, basis = trials[0].experiment, "a short probe"
        measured = measure(first)
        seconds = [_from_probe(trial.experiment, first, measured) for trial in trials]
    left = [
        each * _share(plan, trial) * _share_left(trial.experiment, folder)
        for each, trial, folder in zip(seconds, trials, folders, strict=True)
    ]
    return Row(
        kind,
        round(sum(_planned(plan, trial) for trial in trials)),
        sum(folder.finished for folder in folders),
        sum(_begun(folder) for folder in folders),
        sum(map(is_stopped, folders)),
        sum(folder.read_failure() is not None for folder in folders),
        fmean(seconds),
        sum(left),
        basis,
    )


def _work(experiment: Experiment) -> int:
    """Images that training sees, but for the number of domains, which is the same for all."""
    return length(experiment) * experiment.images_per_domain


def _pace(trial: Trial, folder: RunFolder) -> float | None:
    """Seconds of a finished run, for each image of a domain."""
    if not (folder.finished and folder.timing.is_file()):
        return None
    return read_json(folder.timing)["seconds"] / _work(trial.experiment)


def _from_probe(experiment: Experiment, probed: Experiment, measured: Probe) -> float:
    """A step takes as long as it has images; evaluations do not depend on the batch."""
    batch = experiment.images_per_domain / probed.images_per_domain
    steps = length(experiment)
    evaluations = math.ceil(steps / experiment.evaluate_every)
    return (
        measured.setup
        + steps * measured.step * batch
        + evaluations * measured.evaluation
        + measured.measuring
    )


def _begun(folder: RunFolder) -> bool:
    waiting = folder.checkpoint.is_file() and not folder.finished
    return waiting and not is_stopped(folder)


def _share_left(experiment: Experiment, folder: RunFolder) -> float:
    if folder.finished or is_stopped(folder):
        return 0.0
    return 1 - steps_saved(folder.checkpoint) / length(experiment)


def _planned(plan: Plan, trial: Trial) -> float:
    """1; of a nested plan's draws with one domain held out only one is trained."""
    alone = plan.sweep.pairs == "nested" and len(trial.place.unseen) == 1
    return 1 / len(plan.groups[trial.place]) if alone else 1.0


def _share(plan: Plan, trial: Trial) -> float:
    """Of a run's seconds that are spent on average, where not all draws go to their end."""
    halving = plan.sweep.halving
    if halving is None:
        return _planned(plan, trial)
    steps, draws = length(trial.experiment), len(plan.groups[trial.place])
    share, before, alive = 0.0, 0, draws
    ladder = rungs(trial.experiment, steps, halving)
    for number, step in enumerate((*ladder, steps), 1):
        share += (step - before) / steps * alive / draws
        before, alive = step, kept(draws, halving, number)
    return share
