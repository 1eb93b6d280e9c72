"""Rows of merged models in the tables of a comparison or a sweep: one model from many runs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from unseen.errors import SettingsError
from unseen.results.folder import RunFolder, RunList, find_merged
from unseen.results.result import RunResult
from unseen.settings.experiment import identity
from unseen.sweeps.merge import Choice, merge_runs, problems_of
from unseen.sweeps.plan import Condition, Plan, PlannedRun
from unseen.sweeps.rules import state_of
from unseen.training.devices import is_launched
from unseen.training.display import Display


class MergedRow(NamedTuple):
    """One merged model, and the condition of the runs that it was made from."""

    condition: Condition
    folder: RunFolder
    result: RunResult
    """Under the name of its row."""


def check_mergeable(plan: Plan) -> None:
    """Raise before anything trains where the runs of a plan could not be merged."""
    problems = dict.fromkeys(_problems(plan))
    if problems:
        lines = "\n  ".join(problems)
        raise SettingsError(f"these runs could not be merged afterwards:\n  {lines}")


def _problems(plan: Plan) -> Iterator[str]:
    if is_launched():
        yield "only one process can merge: train first, then give the same command without torchrun"
    if plan.sweep.pairs == "nested":
        yield "pairs: nested pairs train only one draw with one domain held out; set pairs=all"
    groups = _groups(plan)
    if all(len(group) == 1 for group in groups):
        yield "there is one run for each method and domain; give several seeds, or draws"
    for group in groups:
        method = group[0].condition.method
        yield from (f"{each} ({method})" for each in problems_of(run.experiment for run in group))


def merge_plan(
    plan: Plan, runs: Path, choose: Choice | None, console: Console | None = None
) -> list[MergedRow]:
    """Merge the runs of each method and domain: draws of one seed, or, where there is one draw,
    seeds. Those of which a run failed have to wait until the same command has trained it."""
    rows: list[MergedRow] = []
    if choose is None:
        return rows
    for group in _groups(plan):
        states = [state_of(run.folder(runs)) for run in group]
        finished = [r for r, state in zip(group, states, strict=True) if state == "finished"]
        if len(finished) > 1 and set(states) <= {"finished", "stopped"}:
            rows.append(_merge(finished, runs, choose, console or Console(stderr=True)))
    return rows


def with_merged(listed: RunList, rows: Iterable[MergedRow]) -> RunList:
    """A list of runs, followed by merged models."""
    rows = list(rows)
    return listed._replace(
        runs=(*listed.runs, *(row.folder.path for row in rows)),
        rows=(*listed.rows, *(row.result.method for row in rows)),
    )


def _merge(group: Sequence[PlannedRun], runs: Path, choose: Choice, console: Console) -> MergedRow:
    first = group[0]
    identities = [identity(run.experiment) for run in group]
    output = find_merged(runs, first.experiment, choose, identities).path
    with Display(console, 1, output.name) as display:
        folder = merge_runs([run.folder(runs).path for run in group], output, choose, display)
    name = first.condition.method
    result = folder.read_result().model_copy(update={"method": name, "recipe": name})
    named = result.model_copy(update={"method": result.label, "recipe": result.label})
    return MergedRow(first.condition, folder, named)


def _groups(plan: Plan) -> list[list[PlannedRun]]:
    """Runs that become one model, each once: draws from few values may be the same run."""
    found: dict[tuple[Condition, int | None], dict[str, PlannedRun]] = {}
    searched = {run.condition.method for run in plan.singles if run.draw > 0}
    for run in plan.singles:
        condition = run.condition
        seed = condition.seed if condition.method in searched else None
        group = found.setdefault((condition._replace(seed=0), seed), {})
        group.setdefault(identity(run.experiment), run)
    return [list(group.values()) for group in found.values()]
