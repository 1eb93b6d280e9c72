"""After the runs: what each rule chooses, as tables and as a file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import write_json
from unseen.experiments.choose.halving import is_stopped
from unseen.experiments.choose.rounds import paired_draws, winners
from unseen.experiments.choose.rules import Candidate, Draw, choose_draw
from unseen.experiments.plan import Place, Plan, Trial
from unseen.experiments.run.jobs import Outcome
from unseen.records.folder import RunFolder, safe_name
from unseen.records.result import RunResult
from unseen.records.run_list import RunList, write_run_list
from unseen.reports.formats import write_tables
from unseen.reports.gather import Expected
from unseen.reports.notes import rule_note
from unseen.reports.tables import Table, build_tables
from unseen.selection import DRAW_RULES


class Chosen(NamedTuple):
    """The draw that a rule prefers at one place."""

    rule: str
    trial: Trial
    candidate: Candidate
    compared: tuple[int, ...]
    """The draws that it was chosen from."""


class Missing(NamedTuple):
    """A run of the plan without a result, and why."""

    trial: Trial
    folder: RunFolder
    state: str
    error: str


@dataclass(frozen=True)
class Verdict:
    """All that is left to say once the runs are done."""

    home: Path
    chosen: list[Chosen]
    missing: list[Missing]
    tables: dict[str, list[Table]]
    """By rule."""


def judge(plan: Plan, runs: Path, failed: Sequence[Outcome] = ()) -> Verdict:
    """Apply every rule, and write tables and `chosen.json` below `RUNS/tables`."""
    home = runs / "tables" / plan.folder_name
    missing = missing_runs(plan, runs, failed)
    everything: list[Chosen] = []
    tables: dict[str, list[Table]] = {}
    for rule in plan.sweep.rules:
        chosen = [found for place in plan.groups if (found := _choose(plan, place, runs, rule))]
        everything += chosen
        finished = [f.path for each in chosen if (f := each.trial.folder(runs)).finished]
        note = f"{_best_of(plan)}, chosen by rule {rule}: {DRAW_RULES[rule]}."
        write_run_list(home / rule, RunList(tuple(finished), note))
        tables[rule] = _tables(plan, runs, rule, chosen, missing, home / rule)
    write_json(home / "chosen.json", _describe(plan, runs, everything, missing))
    return Verdict(home, everything, missing, tables)


def missing_runs(plan: Plan, runs: Path, failed: Sequence[Outcome] = ()) -> list[Missing]:
    """Runs without a result; of a nested plan, those that were not worth it are none.

    A run whose process died left no word itself: `failed` has it.
    """
    errors = {outcome.path: outcome.error for outcome in failed}
    planned = (*plan.pairs, *plan.singles)
    if plan.sweep.pairs == "nested":
        planned = (*plan.pairs, *winners(plan, runs))
    found = []
    for trial in planned:
        folder = trial.folder(runs)
        if not folder.finished:
            failure = folder.read_failure()
            error = errors.get(folder.path) or (failure.error if failure else "")
            state = "stopped" if is_stopped(folder) else "failed" if error else "unfinished"
            found.append(Missing(trial, folder, state, error))
    return found


def _choose(plan: Plan, place: Place, runs: Path, rule: str) -> Chosen | None:
    """Among the draws whose runs are finished; nothing where there are none."""
    trials = plan.groups[place]
    if rule == "leave-one-domain-out":
        draws = paired_draws(plan, place, runs)
    else:
        folders = [(trial.draw, trial.folder(runs)) for trial in trials]
        draws = [Draw(number, folder) for number, folder in folders if folder.finished]
    if not draws:
        return None
    candidate = choose_draw(rule, draws)
    return Chosen(rule, trials[candidate.draw], candidate, tuple(draw.number for draw in draws))


def _tables(
    plan: Plan,
    runs: Path,
    rule: str,
    chosen: Sequence[Chosen],
    missing: Sequence[Missing],
    home: Path,
) -> list[Table]:
    """The chosen draws' results, one folder of tables for each dataset."""
    datasets = list(dict.fromkeys(place.dataset for place in plan.groups))
    tables: list[Table] = []
    for dataset in datasets:
        found = [(each, each.trial.folder(runs)) for each in chosen]
        results = [
            _measured(folder, each.candidate.recorded, rule)
            for each, folder in found
            if each.trial.place.dataset == dataset and folder.finished
        ]
        if not results:
            continue
        recorded = next(iter(results[0].rules))
        built = build_tables(results, recorded, _expected(plan, dataset))
        gaps = [each for each in missing if each.trial.place.dataset == dataset]
        own = [_named(table, plan, rule, recorded, gaps) for table in built]
        write_tables(own, home if len(datasets) == 1 else home / safe_name(dataset))
        tables += own
    return tables


def _measured(folder: RunFolder, recorded: str, rule: str) -> RunResult:
    """A run's result with the one checkpoint that counts."""
    result = folder.read_result()
    name = "oracle" if rule == "oracle" else recorded
    return result.model_copy(update={"rules": {name: result.under(recorded)}})


def _expected(plan: Plan, dataset: str) -> Expected:
    places = [place for place in plan.groups if place.dataset == dataset]
    return Expected(
        tuple(dict.fromkeys(place.method for place in places)),
        tuple(dict.fromkeys(place.unseen for place in places)),
        tuple(dict.fromkeys(place.seed for place in places)),
    )


def _named(table: Table, plan: Plan, rule: str, recorded: str, missing: Sequence[Missing]) -> Table:
    """Rule and number of draws belong to every number of the table."""
    about = [f"{_best_of(plan)} for each column and seed; rule {rule}: {DRAW_RULES[rule]}."]
    states = Counter(each.state for each in missing)
    if states:
        parts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        about.append(f"Not compared, for want of a result: {parts} (chosen.json names the runs).")
    rest = [note for note in table.notes if note != rule_note(recorded)]
    title = f"{table.title}, {_best_of(plan).lower()} by rule {rule}"
    return replace(table, title=title, rule=rule, notes=(*about, *rest))


def _best_of(plan: Plan) -> str:
    numbers = sorted({len(trials) for trials in plan.groups.values()})
    return f"Best of {' or '.join(map(str, numbers))} draw{'' if numbers == [1] else 's'}"


def _describe(
    plan: Plan, runs: Path, chosen: Sequence[Chosen], missing: Sequence[Missing]
) -> dict[str, Any]:
    return {
        "sweep": plan.name,
        "settings": plan.sweep.model_dump(mode="json"),
        "rules": {rule: DRAW_RULES[rule] for rule in plan.sweep.rules},
        "chosen": [_describe_choice(plan, runs, each) for each in chosen],
        "missing": [
            {
                **_describe_run(each.trial, each.folder),
                "state": each.state,
                "error": each.error,
            }
            for each in missing
        ],
    }


def _describe_choice(plan: Plan, runs: Path, each: Chosen) -> dict[str, Any]:
    folder = each.trial.folder(runs)
    step = None
    if folder.finished:
        step = folder.read_result().under(each.candidate.recorded).step
    everyone = [trial.draw for trial in plan.groups[each.trial.place]]
    return {
        "rule": each.rule,
        **_describe_run(each.trial, folder),
        "score": each.candidate.score,
        "step": step,
        "compared": len(each.compared),
        "left_out": [draw for draw in everyone if draw not in each.compared],
    }


def _describe_run(trial: Trial, folder: RunFolder) -> dict[str, Any]:
    return {
        **trial.place._asdict(),
        "draw": trial.draw,
        "settings": trial.values,
        "run": folder.path.name,
    }
