"""A plan before it is trained: its runs, where they stand, and what they cost."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from unseen.data.downloads import DOWNLOADS
from unseen.settings.experiment import Experiment
from unseen.sweeps.draws import Part, draws_of
from unseen.sweeps.plan import Plan, PlannedRun
from unseen.sweeps.rules import expected_share, state_of
from unseen.training.checkpoints import steps_saved
from unseen.training.timing import ImageTimes

LARGE = 5000
"""Runs from which on they are counted and timed by method, not looked at one by one."""
_MOST_RUNS_SHOWN = 40
_A_STEP = "a timed step"

Measure = Callable[[Experiment, int, int], ImageTimes]
"""Times a step with these settings and numbers of domains and classes."""


class Row(NamedTuple):
    """All runs of one kind: a method on a dataset and a backbone, or several methods."""

    kind: tuple[str, str, str]
    planned: int
    states: Mapping[str, int]
    seconds_per_run: float
    seconds_left: float
    basis: str
    """What the seconds are derived from."""


def is_listed(plan: Plan) -> bool:
    """Whether runs are looked at one by one: not where they are too many, or data are missing."""
    return plan.count <= LARGE and not plan.absent


def estimate(plan: Plan, measure: Measure) -> list[Row]:
    """Return one row for each method on a dataset and backbone; where runs are not listed, one for
    each dataset and backbone.

    Where a run is finished its time is used; otherwise one step of the method is timed, once on
    each backbone.
    """
    times: dict[tuple[str, str, int | None], ImageTimes] = {}

    def timed(part: Part) -> ImageTimes:
        experiment, network = part.experiment, part.experiment.network
        key = (experiment.method.model_dump_json(), network.name, network.image_size)
        if key not in times:
            domains = max(2, part.size.domains - 1)
            times[key] = measure(experiment, domains, part.size.classes)
        return times[key]

    if not is_listed(plan):
        kinds: dict[tuple[str, str], list[Part]] = {}
        for part in plan.parts:
            kinds.setdefault((part.dataset, part.experiment.network.name), []).append(part)
        return [_row_of_parts(plan, parts, timed) for parts in kinds.values()]
    parts = {part.kind: part for part in plan.parts}
    runs: dict[tuple[str, str, str], list[PlannedRun]] = {}
    for run in plan.distinct:
        runs.setdefault(run.condition[:3], []).append(run)
    return [_row_of_runs(plan, parts[kind], planned, timed) for kind, planned in runs.items()]


def _row_of_runs(
    plan: Plan, part: Part, planned: Sequence[PlannedRun], timed: Callable[[Part], ImageTimes]
) -> Row:
    states = [state_of(run.folder) for run in planned]
    work = [_batch(part, run.changes) * run.steps for run in planned]
    known = [
        run.folder.read_seconds() / images
        for run, images, state in zip(planned, work, states, strict=True)
        if state == "finished" and run.folder.timing.is_file()
    ]
    if known:
        basis = f"{len(known)} finished run{'s' * (len(known) > 1)}"
        seconds = [fmean(known) * images for images in work]
    else:
        basis, times = _A_STEP, timed(part)
        seconds = [run_seconds(part, r.steps, _batch(part, r.changes), times) for r in planned]
    shares = [expected_share(plan, run) for run in planned]
    left = [
        each * share * (1 - steps_saved(run.folder.checkpoint) / run.steps)
        for run, each, share, state in zip(planned, seconds, shares, states, strict=True)
        if state not in ("finished", "stopped")
    ]
    number = len(planned) if plan.sweep.halving else round(sum(shares))  # in halving, all begin
    return Row(part.kind, number, Counter(states), fmean(seconds), sum(left), basis)


def _row_of_parts(plan: Plan, parts: Sequence[Part], timed: Callable[[Part], ImageTimes]) -> Row:
    numbers = [part.count(plan.sweep) for part in parts]
    work = 0.0
    for part, number in zip(parts, numbers, strict=True):
        drawn = draws_of(plan.sweep, part, plan.sweep.seeds[0])
        batch = fmean(_batch(part, changes) for changes in drawn)
        work += number * run_seconds(part, _steps(part), batch, timed(part))
    dataset, row, backbone = parts[0].kind
    methods = row if len(parts) == 1 else f"{len(parts)} methods"
    runs = sum(numbers)
    return Row((dataset, methods, backbone), runs, {}, work / runs, work, _A_STEP)


def _batch(part: Part, changes: Mapping[str, Any]) -> int:
    """Return the images of a domain in a batch."""
    return int(changes.get("images_per_domain", part.experiment.images_per_domain))


def _steps(part: Part) -> float:
    """Return the length of a run, whose number of epochs counts images of the published size."""
    experiment, size, data = part.experiment, part.size, part.experiment.data
    share = (1 - data.validation_share - data.test_share) / size.domains
    per_epoch = size.images * share / experiment.images_per_domain
    return experiment.steps or (experiment.epochs or 0) * per_epoch


def run_seconds(part: Part, steps: float, batch: float, times: ImageTimes) -> float:
    """Return the seconds of a run with so many images of a domain in a batch: steps, evaluations on
    the validation images, and the measurement at the end."""
    experiment, size = part.experiment, part.size
    training = max(1, size.domains - 1)
    validated = size.images * training / size.domains * experiment.data.validation_share
    evaluations = math.ceil(steps / experiment.evaluate_every)
    final = 2 * (size.images / size.domains + validated)
    return (
        steps * batch * training * times.training
        + (evaluations * validated + final) * times.evaluation
    )


def on_workers(rows: Sequence[Row], workers: int) -> float:
    """Return seconds by the clock: the work shared out, but no run is done by two."""
    left = [row for row in rows if row.seconds_left]
    longest = max((row.seconds_per_run for row in left), default=0.0)
    return max(longest, sum(row.seconds_left for row in left) / workers)


def runs_table(plan: Plan) -> Table | None:
    """Return every run with its searched settings and where it stands; None where they are too
    many."""
    if len(plan.distinct) > _MOST_RUNS_SHOWN:
        return None
    table = Table(title="Runs", title_justify="left")
    for column in ("method", "unseen", "seed", "draw", "settings", "state"):
        table.add_column(column)
    for run in plan.distinct:
        dataset, method, backbone, unseen, seed = run.condition
        name = f"{method} ({dataset}, {backbone})" if plan.has_several_kinds else method
        values = ", ".join(f"{path}={value}" for path, value in run.values.items())
        cells = [name, "+".join(unseen), str(seed), str(run.draw), values]
        table.add_row(*map(escape, cells), state_of(run.folder))
    return table


def cost_table(rows: Sequence[Row]) -> Table:
    """Return runs by kind, and the time that is left; columns without a number are left out."""
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
    """Say in a sentence how long all runs take on so many workers and on more."""
    planned = sum(row.planned for row in rows)
    finished = sum(row.states.get("finished", 0) for row in rows)
    work = sum(row.seconds_left for row in rows)
    counts = sorted({1, workers, 2 * workers, 8 * workers})
    times = ", ".join(f"{clock(on_workers(rows, k))} on {k}" for k in counts)
    return (
        f"{planned:,} runs, {finished:,} finished; {clock(work)} of work is left: {times} workers "
        "like this one."
    )


def absent_summary(absent: Mapping[str, str]) -> Iterator[str]:
    """Name datasets that were counted by their published size, and how to get their files."""
    if absent:
        yield f"Not at hand, and counted by their published size: {', '.join(absent)}."
    for name, why in absent.items():
        fetched = f" (or: unseen prepare {name} --download)" if name in DOWNLOADS else ""
        yield f"  {name}: {why}{fetched}"


def clock(seconds: float) -> str:
    """Write `40 s`, `12 min`, `3.5 h`, `12 days` or `3 years`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.1f} h"
    if seconds < 1000 * 86400:
        return f"{seconds / 86400:.1f} days"
    return f"{seconds / (365 * 86400):,.0f} years"
