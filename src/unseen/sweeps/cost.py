"""A plan before it is trained: its runs, where they stand, and what they cost."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from unseen.atomic import read_json
from unseen.data.downloads import DOWNLOADS
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.sweeps.plan import Plan, PlannedRun
from unseen.sweeps.rules import expected_share, state_of
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


_MOST_RUNS_SHOWN = 40


def runs_table(plan: Plan, runs: Path) -> Table | None:
    """Every run with its searched settings and where it stands; None where they are too many."""
    if len(plan.distinct) > _MOST_RUNS_SHOWN:
        return None
    table = Table(title="Runs", title_justify="left")
    for column in ("method", "unseen", "seed", "draw", "settings", "state"):
        table.add_column(column)
    several = len({(c.dataset, c.backbone) for c in plan.draws}) > 1
    for run in plan.distinct:
        dataset, method, backbone, unseen, seed = run.condition
        name = f"{method} ({dataset}, {backbone})" if several else method
        values = ", ".join(f"{path}={value}" for path, value in run.values.items())
        cells = [name, "+".join(unseen), str(seed), str(run.draw), values]
        table.add_row(*map(escape, cells), state_of(run.folder(runs)))
    return table


def cost_table(rows: Sequence[Row]) -> Table:
    """Runs by kind, and the time that is left; columns without a number are left out."""
    table = Table(title="Cost", title_justify="left")
    table.add_column("runs of", overflow="fold")
    states = ("finished", "to resume", "stopped", "failed")
    shown = [state for state in states if any(row.states.get(state) for row in rows)]
    for column in ("planned", *shown, "a run", "left"):
        table.add_column(column, justify="right")
    table.add_column("by", overflow="fold")
    for row in rows:
        dataset, method, backbone = map(escape, row.kind)
        numbers = [row.planned, *(row.states.get(state, 0) for state in shown)]
        times = (clock(row.seconds_per_run), clock(row.seconds_left))
        kind = f"{method} ({dataset}, {backbone})"
        table.add_row(kind, *map(str, numbers), *times, row.basis)
    return table


def cost_summary(rows: Sequence[Row], workers: int) -> str:
    planned, finished = (
        sum(row.planned for row in rows),
        sum(row.states.get("finished", 0) for row in rows),
    )
    work = sum(row.seconds_left for row in rows)
    counts = sorted({1, workers, 2 * workers, 8 * workers})
    times = ", ".join(f"{clock(on_workers(rows, k))} on {k}" for k in counts)
    return (
        f"{planned:,} runs, {finished:,} finished; {clock(work)} of work is left: {times} workers "
        "like this one."
    )


def absent_summary(absent: Mapping[str, str]) -> Iterator[str]:
    """Datasets that were counted by their published size, and how to get their files."""
    if absent:
        yield f"Not at hand, and counted by their published size: {', '.join(absent)}."
    for name, why in absent.items():
        fetched = f" (or: unseen prepare {name} --download)" if name in DOWNLOADS else ""
        yield f"  {name}: {why}{fetched}"


def clock(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`, `12 days` or `3 years`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds < 1000 * 86400:
        return f"{seconds / 86400:.1f} days"
    return f"{seconds / (365 * 86400):,.0f} years"
