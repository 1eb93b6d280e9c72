"""After a sweep: what each rule chooses, as tables and as a file."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import write_json
from unseen.reports.formats import write_table, write_tables
from unseen.reports.tables import Table, build_tables, summarize
from unseen.results.files import FORMAT
from unseen.results.folder import RunFolder, RunList, safe_name, write_run_list
from unseen.results.result import RunResult
from unseen.results.rules import DRAW_RULES, meaning, rule_note
from unseen.sweeps.jobs import Outcome
from unseen.sweeps.merged_rows import MergedRow, with_merged
from unseen.sweeps.plan import Condition, Plan, PlannedRun
from unseen.sweeps.rules import Candidate, Draw, choose_draw, paired_draws, state_of, winners


class Chosen(NamedTuple):
    """The draw that a rule prefers under one condition."""

    rule: str
    run: PlannedRun
    candidate: Candidate
    compared: tuple[int, ...]
    """The draws that it was chosen from."""


class Missing(NamedTuple):
    """A run of the plan without a result, and why."""

    run: PlannedRun
    folder: RunFolder
    state: str
    error: str


@dataclass(frozen=True)
class SweepResults:
    """What was chosen from the runs of a sweep, and what could not be compared."""

    home: Path
    chosen: list[Chosen]
    missing: list[Missing]
    tables: dict[str, list[Table]]
    """By rule."""
    summaries: dict[str, Table] = field(default_factory=dict)
    """By rule, where there are several datasets: they are the columns."""


def write_results(
    plan: Plan, runs: Path, outcomes: Sequence[Outcome] = (), merged: Sequence[MergedRow] = ()
) -> SweepResults:
    """Apply every rule, and write tables and `chosen.json` below `RUNS/tables`; merged models stand
    in the tables of the rules that their weights were chosen by."""
    home = runs / "tables" / plan.folder_name
    missing = missing_runs(plan, runs, outcomes)
    everything: list[Chosen] = []
    tables: dict[str, list[Table]] = {}
    summaries: dict[str, Table] = {}
    for rule in plan.rules:
        chosen = [found for each in plan.draws if (found := _choose(plan, each, runs, rule))]
        everything += chosen
        finished = [each.run for each in chosen if each.run.folder(runs).finished]
        note = f"{_best_of(plan)}, chosen by rule {rule}: {_meaning(plan, rule)}."
        rows = [row for row in merged if rule in row.result.rules]
        write_run_list(home / rule, with_merged(list_runs(finished, runs, note), rows))
        results = _results(plan, runs, rule, chosen, rows)
        tables[rule] = _tables(plan, home / rule, rule, results, missing)
        if len(results) > 1:
            summaries[rule] = _summary(plan, rule, results, missing)
            write_table(summaries[rule], home / rule, "summary")
    about_merged = [
        {**row.condition._asdict(), "row": row.result.method, "run": row.folder.path.name}
        for row in merged
    ]
    content = _describe(plan, runs, everything, missing) | {"merged": about_merged}
    write_json(home / "chosen.json", content)
    return SweepResults(home, everything, missing, tables, summaries)


def list_runs(planned: Iterable[PlannedRun], runs: Path, note: str = "") -> RunList:
    """Finished runs, and the rows that they belong to."""
    rows = {run.folder(runs).path: run.condition.method for run in planned}
    return RunList(tuple(rows), note, tuple(rows.values()))


def missing_runs(plan: Plan, runs: Path, outcomes: Sequence[Outcome] = ()) -> list[Missing]:
    """Runs without a result. With nested pairs, draws that did not win are not missing.

    A run whose process died left no word itself: the outcomes have it.
    """
    errors = {outcome.path: outcome.error for outcome in outcomes}
    singles = winners(plan, runs) if plan.sweep.pairs == "nested" else plan.singles
    found = []
    for run in (*plan.pairs, *singles):
        folder = run.folder(runs)
        if not folder.finished:
            failure = folder.read_failure()
            error = errors.get(folder.path) or (failure.error if failure else "")
            state = state_of(folder)
            if error and state != "stopped":
                state = "failed"
            found.append(Missing(run, folder, state, error))
    return found


def _choose(plan: Plan, condition: Condition, runs: Path, rule: str) -> Chosen | None:
    """Among the draws whose runs are finished; nothing where there are none."""
    if rule == "leave-one-domain-out":
        draws = paired_draws(plan, condition, runs)
    else:
        folders = [(run.draw, run.folder(runs)) for run in plan.draws[condition]]
        draws = [Draw(number, folder) for number, folder in folders if folder.finished]
    if not draws:
        return None
    candidate = choose_draw(rule, draws)
    run = plan.draws[condition][candidate.draw]
    return Chosen(rule, run, candidate, tuple(draw.number for draw in draws))


def _results(
    plan: Plan, runs: Path, rule: str, chosen: Sequence[Chosen], merged: Sequence[MergedRow]
) -> dict[str, list[RunResult]]:
    """Of the chosen draws, by dataset; merged models follow where a draw was chosen."""
    found: dict[str, list[RunResult]] = {condition.dataset: [] for condition in plan.draws}
    for each in chosen:
        if each.run.folder(runs).finished:
            measured = _measured(each.run.read_result(runs), each.candidate.recorded, rule)
            found[each.run.condition.dataset].append(measured)
    for dataset, results in found.items():
        if results:
            results += [row.result for row in merged if row.condition.dataset == dataset]
    return found


def _tables(
    plan: Plan,
    home: Path,
    rule: str,
    by_dataset: Mapping[str, Sequence[RunResult]],
    missing: Sequence[Missing],
) -> list[Table]:
    """The three tables of each dataset, in a folder of its own where there are several."""
    tables: list[Table] = []
    for dataset, results in by_dataset.items():
        if not results:
            continue
        recorded = next(iter(results[0].rules))
        built = build_tables(results, recorded, plan.expected(dataset))
        gaps = [each for each in missing if each.run.condition.dataset == dataset]
        own = [_named(table, plan, rule, recorded, gaps) for table in built]
        write_tables(own, home if len(by_dataset) == 1 else home / safe_name(dataset))
        tables += own
    return tables


def _summary(
    plan: Plan,
    rule: str,
    by_dataset: Mapping[str, Sequence[RunResult]],
    missing: Sequence[Missing],
) -> Table:
    """Columns are called by the datasets themselves, unless recipes of several are of one."""
    names = {run.condition.dataset: run.experiment.data.name for run in plan.singles}
    if len(set(names.values())) < len(names):
        names = {family: family for family in names}
    table = summarize(
        {names[family]: results for family, results in by_dataset.items()},
        {names[family]: plan.expected(family) for family in by_dataset},
        rule,
        _about(plan, rule, missing),
    )
    return replace(table, title=_title(table, plan, rule))


def _measured(result: RunResult, recorded: str, rule: str) -> RunResult:
    """A run's result with the one checkpoint that counts."""
    name = "oracle" if rule == "oracle" else recorded
    return result.model_copy(update={"rules": {name: result.under(recorded)}})


def _named(table: Table, plan: Plan, rule: str, recorded: str, missing: Sequence[Missing]) -> Table:
    """Rule and number of draws belong to every number of the table."""
    rest = [note for note in table.notes if note != rule_note(recorded, table.metric)]
    notes = (*_about(plan, rule, missing), *rest)
    return replace(table, title=_title(table, plan, rule), rule=rule, notes=notes)


def _title(table: Table, plan: Plan, rule: str) -> str:
    return f"{table.title}, {_best_of(plan).lower()} by rule {rule}"


def _about(plan: Plan, rule: str, missing: Sequence[Missing]) -> list[str]:
    about = [f"{_best_of(plan)} for each column and seed; rule {rule}: {_meaning(plan, rule)}."]
    states = Counter(each.state for each in missing)
    if states:
        parts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        about.append(f"Without a result: {parts} (chosen.json names the runs).")
    return about


def _meaning(plan: Plan, rule: str) -> str:
    return meaning(rule, plan.metric, DRAW_RULES)


def _best_of(plan: Plan) -> str:
    numbers = sorted({len(draws) for draws in plan.draws.values()})
    return "One draw" if numbers == [1] else f"Best of {' or '.join(map(str, numbers))} draws"


def _describe(
    plan: Plan, runs: Path, chosen: Sequence[Chosen], missing: Sequence[Missing]
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "sweep": plan.name,
        "settings": plan.sweep.model_dump(mode="json"),
        "rules": {rule: _meaning(plan, rule) for rule in plan.rules},
        "chosen": [_describe_choice(plan, runs, each) for each in chosen],
        "missing": [
            {**_describe_run(each.run, each.folder), "state": each.state, "error": each.error}
            for each in missing
        ],
    }


def _describe_choice(plan: Plan, runs: Path, each: Chosen) -> dict[str, Any]:
    folder = each.run.folder(runs)
    step = None
    if folder.finished:
        step = folder.read_result().under(each.candidate.recorded).step
    everyone = [run.draw for run in plan.draws[each.run.condition]]
    return {
        "rule": each.rule,
        **_describe_run(each.run, folder),
        "score": each.candidate.score,
        "step": step,
        "compared": len(each.compared),
        "left_out": [draw for draw in everyone if draw not in each.compared],
    }


def _describe_run(run: PlannedRun, folder: RunFolder) -> dict[str, Any]:
    return {
        **run.condition._asdict(),
        "draw": run.draw,
        "settings": run.values,
        "run": folder.path.name,
    }
