"""A plan before it is trained: its runs, where they stand, and what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from unseen.data.downloads.addresses import DOWNLOADS
from unseen.experiments.choose.halving import state_of
from unseen.experiments.cost import Row, on_workers
from unseen.experiments.plan import Plan

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
