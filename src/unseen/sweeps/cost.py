"""A plan before it is trained: its runs, where they stand, and what they cost."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from unseen.atomic import read_json
from unseen.data.downloads import DOWNLOADS
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.sweeps.draws import draws_of
from unseen.sweeps.plan import Outline, Part, Plan, PlannedRun
from unseen.sweeps.rules import expected_share, state_of
from unseen.training.checkpoints import steps_saved
from unseen.training.timing import ImageTimes, RunTimes

LARGE = 5000
"""Runs from which on they are counted and timed by method, not looked at one by one."""
_MOST_RUNS_SHOWN = 40

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


def estimate_plan(plan: Plan, measure: Callable[[Experiment], RunTimes]) -> list[Row]:
    """One row for each kind; `measure` is asked only about kinds of which no run is finished."""
    kinds: dict[Kind, list[PlannedRun]] = {}
    for run in plan.distinct:
        condition = run.condition
        kind = (condition.dataset, condition.method, condition.backbone)
        kinds.setdefault(kind, []).append(run)
    return [_row(plan, kind, own, measure) for kind, own in kinds.items()]


def _row(
    plan: Plan, kind: Kind, planned: Sequence[PlannedRun], measure: Callable[[Experiment], RunTimes]
) -> Row:
    folders = [run.folder for run in planned]
    known = [
        read_json(folder.timing)["seconds"] / _work(run)
        for run, folder in zip(planned, folders, strict=True)
        if folder.finished and folder.timing.is_file()
    ]
    if known:
        basis = f"{len(known)} finished run{'s' * (len(known) > 1)}"
        seconds = [fmean(known) * _work(run) for run in planned]
    else:
        first = planned[0].experiment
        basis, times = "a few timed steps", measure(first)
        seconds = [_seconds(run.experiment, run.steps, first, times) for run in planned]
    left = [
        each * expected_share(plan, run) * _share_left(run, folder)
        for each, run, folder in zip(seconds, planned, folders, strict=True)
    ]
    shares = [expected_share(plan, run) for run in planned]
    number = len(planned) if plan.sweep.halving else round(sum(shares))  # in halving, all begin
    return Row(kind, number, Counter(map(state_of, folders)), fmean(seconds), sum(left), basis)


def _work(run: PlannedRun) -> int:
    """Images that training sees, but for the number of domains, which is the same for all."""
    return run.steps * run.experiment.images_per_domain


def _seconds(experiment: Experiment, steps: int, timed: Experiment, times: RunTimes) -> float:
    """A step takes as long as it has images; evaluations do not depend on the batch."""
    batch = experiment.images_per_domain / timed.images_per_domain
    evaluations = math.ceil(steps / experiment.evaluate_every)
    return (
        times.setup
        + steps * times.step * batch
        + evaluations * times.validation
        + times.final_evaluation
    )


def _share_left(run: PlannedRun, folder: RunFolder) -> float:
    if state_of(folder) in ("finished", "stopped"):
        return 0.0
    return 1 - steps_saved(folder.checkpoint) / run.steps


def estimate_outline(
    outline: Outline, measure: Callable[[Experiment, int, int], ImageTimes]
) -> list[Row]:
    """One row for each dataset and backbone of a sweep too large to list, or whose datasets are not
    all at hand. `measure` gets settings and numbers of domains and classes: every method is timed
    once on each backbone."""
    times: dict[tuple[str, str, int | None], ImageTimes] = {}
    kinds: dict[tuple[str, str], list[Part]] = {}
    for part in outline.parts:
        kinds.setdefault((part.base.dataset, part.base.experiment.network.name), []).append(part)
    rows: list[Row] = []
    for (dataset, backbone), parts in kinds.items():
        runs, work = 0, 0.0
        for part in parts:
            network, method = part.base.experiment.network, part.base.experiment.method
            key = (method.model_dump_json(), network.name, network.image_size)
            if key not in times:
                times[key] = measure(part.base.experiment, max(2, part.size.domains - 1), 7)
            own = part.count(outline.sweep)
            runs, work = runs + own, work + own * run_seconds(outline, part, times[key])
        methods = parts[0].base.method if len(parts) == 1 else f"{len(parts)} methods"
        kind = (dataset, methods, backbone)
        rows.append(Row(kind, runs, {}, work / runs, work, "a step on noise"))
    return rows


def run_seconds(outline: Outline, part: Part, times: ImageTimes) -> float:
    """Seconds of a run, on average over the draws: steps, evaluations on the validation images, and
    the measurement at the end."""
    experiment, size = part.base.experiment, part.size
    training = max(1, size.domains - 1)
    seen = size.images * training / size.domains
    validated = seen * experiment.data.validation_share
    trained = seen * (1 - experiment.data.validation_share - experiment.data.test_share)
    batch = experiment.images_per_domain * training
    steps = experiment.steps or (experiment.epochs or 0) * trained / batch
    own = experiment.images_per_domain
    draws = draws_of(outline.sweep, part.base, outline.sweep.seeds[0])
    drawn = fmean(values.get("images_per_domain", own) for values in draws) / own
    evaluations = math.ceil(steps / experiment.evaluate_every)
    final = 2 * (size.images / size.domains + validated)
    return (
        steps * batch * drawn * times.training
        + (evaluations * validated + final) * times.evaluation
    )


def on_workers(rows: Sequence[Row], workers: int) -> float:
    """Seconds by the clock: the work shared out, but no run is done by two."""
    left = [row for row in rows if row.seconds_left]
    longest = max((row.seconds_per_run for row in left), default=0.0)
    return max(longest, sum(row.seconds_left for row in left) / workers)


def runs_table(plan: Plan) -> Table | None:
    """Every run with its searched settings and where it stands; None where they are too many."""
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
    """All runs in a sentence, and how long they take on so many workers and on more."""
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
