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
from unseen.training.timing import ImageTimes

LARGE = 5000
"""Runs from which on they are counted and timed by method, not looked at one by one."""
_MOST_RUNS_SHOWN = 40
_A_STEP = "a timed step"

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


Measure = Callable[[Experiment, int, int], ImageTimes]
"""Times a step with these settings and numbers of domains and classes."""


def estimate(outline: Outline, plan: Plan | None, measure: Measure) -> list[Row]:
    """One row for each method on a dataset and backbone; without a plan, because it is too large or
    not all data are at hand, one for each dataset and backbone.

    Where a run is finished its time is used; otherwise one step of the method is timed, once on
    each backbone.
    """
    times: dict[tuple[str, str, int | None], ImageTimes] = {}

    def timed(part: Part) -> ImageTimes:
        experiment, network = part.base.experiment, part.base.experiment.network
        key = (experiment.method.model_dump_json(), network.name, network.image_size)
        if key not in times:
            domains = max(2, part.size.domains - 1)
            times[key] = measure(experiment, domains, part.size.classes)
        return times[key]

    if plan is None:
        return _rows_of_parts(outline, timed)
    kinds: dict[Kind, list[PlannedRun]] = {}
    for run in plan.distinct:
        kinds.setdefault(run.condition[:3], []).append(run)
    parts = {(p.base.dataset, p.base.row, p.base.experiment.network.name): p for p in outline.parts}
    return [_row(plan, kind, runs, parts[kind], timed) for kind, runs in kinds.items()]


def _row(
    plan: Plan,
    kind: Kind,
    planned: Sequence[PlannedRun],
    part: Part,
    timed: Callable[[Part], ImageTimes],
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
        basis = _A_STEP
        times = timed(part)
        batches = [run.experiment.images_per_domain for run in planned]
        seconds = [
            run_seconds(part, run.steps, batch, times)
            for run, batch in zip(planned, batches, strict=True)
        ]
    shares = [expected_share(plan, run) for run in planned]
    left = [
        each * share * _share_left(run, folder)
        for each, share, run, folder in zip(seconds, shares, planned, folders, strict=True)
    ]
    number = len(planned) if plan.sweep.halving else round(sum(shares))  # in halving, all begin
    return Row(kind, number, Counter(map(state_of, folders)), fmean(seconds), sum(left), basis)


def _work(run: PlannedRun) -> int:
    """Images that training sees, but for the number of domains, which is the same for all."""
    return run.steps * run.experiment.images_per_domain


def _share_left(run: PlannedRun, folder: RunFolder) -> float:
    if state_of(folder) in ("finished", "stopped"):
        return 0.0
    return 1 - steps_saved(folder.checkpoint) / run.steps


def _rows_of_parts(outline: Outline, timed: Callable[[Part], ImageTimes]) -> list[Row]:
    kinds: dict[tuple[str, str], list[Part]] = {}
    for part in outline.parts:
        kinds.setdefault((part.base.dataset, part.base.experiment.network.name), []).append(part)
    rows: list[Row] = []
    for (dataset, backbone), parts in kinds.items():
        numbers = [part.count(outline.sweep) for part in parts]
        work = 0.0
        for part, number in zip(parts, numbers, strict=True):
            own = part.base.experiment
            drawn = draws_of(outline.sweep, part.base, outline.sweep.seeds[0])
            batch = fmean(each.get("images_per_domain", own.images_per_domain) for each in drawn)
            work += number * run_seconds(part, part.steps, batch, timed(part))
        methods = parts[0].base.method if len(parts) == 1 else f"{len(parts)} methods"
        runs = sum(numbers)
        rows.append(Row((dataset, methods, backbone), runs, {}, work / runs, work, _A_STEP))
    return rows


def run_seconds(part: Part, steps: float, batch: float, times: ImageTimes) -> float:
    """Seconds of a run with so many images of a domain in a batch: steps, evaluations on the
    validation images, and the measurement at the end."""
    experiment, size = part.base.experiment, part.size
    training = max(1, size.domains - 1)
    validated = size.images * training / size.domains * experiment.data.validation_share
    evaluations = math.ceil(steps / experiment.evaluate_every)
    final = 2 * (size.images / size.domains + validated)
    return (
        steps * batch * training * times.training
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
