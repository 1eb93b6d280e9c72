"""After a sweep: what each rule chooses, as tables and as a file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import write_json
from unseen.reports.formats import write_table, write_tables
from unseen.reports.tables import Table, build_tables, summarize
from unseen.results.files import FORMAT
from unseen.results.folder import RunList, safe_name, write_run_list
from unseen.results.result import RunResult
from unseen.results.rules import DRAW_RULES, meaning, rule_note
from unseen.sweeps.jobs import Outcome
from unseen.sweeps.plan import Condition, Plan, PlannedRun
from unseen.sweeps.rules import Candidate, Draw, choose_draw, paired_draws, state_of, winners
from unseen.sweeps.train import MergedRow


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
    state: str
    error: str


@dataclass(frozen=True)
class SweepResults:
    """What was chosen from the runs of a sweep or a comparison, and what could not be compared."""

    plan: Plan
    chosen: list[Chosen]
    missing: list[Missing]
    merged: list[MergedRow]
    by_dataset: dict[str, dict[str, list[Table]]]
    """The tables of each rule and dataset."""
    summaries: dict[str, Table]
    """The summary of each rule, where there are several datasets: they are the columns."""

    @property
    def home(self) -> Path:
        """The folder of the tables: below it, each rule has one of its own."""
        return self.plan.home

    @property
    def tables(self) -> dict[str, list[Table]]:
        """The tables of each rule; with several datasets, of one after the other."""
        return {
            rule: [table for tables in found.values() for table in tables]
            for rule, found in self.by_dataset.items()
        }

    @property
    def shown(self) -> list[Table]:
        """The tables of the sweep's own rule; of several datasets, their summary."""
        rule = self.plan.rule
        return [self.summaries[rule]] if rule in self.summaries else self.tables[rule]

    @property
    def results(self) -> list[RunResult]:
        """The results behind the sweep's own tables."""
        return [each.run.result for each in self._finished(self.plan.rule)]

    @property
    def folders(self) -> list[Path]:
        """The run folders of these results."""
        return [each.run.path for each in self._finished(self.plan.rule)]

    @property
    def failed(self) -> list[Missing]:
        """Runs that should have a result, and have none."""
        return [each for each in self.missing if each.state != "stopped"]

    @property
    def failures(self) -> str:
        """What failed, and how to continue; empty if nothing did."""
        if not self.failed:
            return ""
        lines = [
            f"{each.state}: {self.plan.label(each.run)}: {each.error}\n    {each.run.path}"
            for each in self.failed
        ]
        again = "the same command" if self.plan.is_comparison else "a higher --retries"
        return (
            f"{len(lines)} of {self.plan.size} runs failed; {again} tries them again, and keeps "
            "the others:\n  " + "\n  ".join(lines)
        )

    def _finished(self, rule: str) -> Iterator[Chosen]:
        """The choices of a rule whose runs are finished: with pairs, a winner may not be yet."""
        found = (each for each in self.chosen if each.rule == rule)
        return (each for each in found if each.run.folder.finished)

    def write(self) -> None:
        """Tables, the lists of their runs, and `chosen.json`, below `RUNS/tables`."""
        for rule in self.plan.rules:
            folder = self.home / rule
            listed = [(each.run.path, each.run.condition.method) for each in self._finished(rule)]
            rows = [row for row in self.merged if rule in row.result.rules]
            listed += [(row.folder.path, row.result.method) for row in rows]
            paths, names = zip(*dict(listed).items(), strict=True) if listed else ((), ())
            write_run_list(folder, RunList(paths, _note(self.plan, rule), names))
            for dataset, tables in self.by_dataset[rule].items():
                several = len(_datasets(self.plan)) > 1
                write_tables(tables, folder / safe_name(dataset) if several else folder)
            if rule in self.summaries:
                write_table(self.summaries[rule], folder, "summary")
        write_json(self.home / "chosen.json", _describe(self))


def apply_rules(
    plan: Plan, outcomes: Sequence[Outcome] = (), merged: Sequence[MergedRow] = ()
) -> SweepResults:
    """Choose among the draws by every rule, and put the results into tables. Merged models stand in
    those of the rules that their weights were chosen by."""
    missing = list(_missing(plan, outcomes))
    everything: list[Chosen] = []
    tables: dict[str, dict[str, list[Table]]] = {}
    summaries: dict[str, Table] = {}
    for rule in plan.rules:
        chosen = [found for each in plan.draws if (found := _choose(plan, each, rule))]
        everything += chosen
        rows = [row for row in merged if rule in row.result.rules]
        results = {dataset: _results(dataset, rule, chosen, rows) for dataset in _datasets(plan)}
        tables[rule] = {
            dataset: _tables(plan, dataset, rule, own, missing)
            for dataset, own in results.items()
            if own
        }
        if len(results) > 1 and tables[rule]:
            summaries[rule] = _summary(plan, rule, results, missing)
    return SweepResults(plan, everything, missing, list(merged), tables, summaries)


def _datasets(plan: Plan) -> list[str]:
    return list(dict.fromkeys(condition.dataset for condition in plan.draws))


def _missing(plan: Plan, outcomes: Sequence[Outcome]) -> Iterator[Missing]:
    """Runs without a result. With nested pairs, draws that did not win are not missing.

    A run whose process died left no word itself: the outcomes have it.
    """
    errors = {outcome.path: outcome.error for outcome in outcomes}
    singles = winners(plan) if plan.sweep.pairs == "nested" else plan.singles
    for run in (*plan.pairs, *singles):
        folder = run.folder
        if not folder.finished:
            failure = folder.read_failure()
            error = errors.get(run.path) or (failure.error if failure else "")
            state = state_of(folder)
            yield Missing(run, "failed" if error and state != "stopped" else state, error)


def _choose(plan: Plan, condition: Condition, rule: str) -> Chosen | None:
    """Among the draws whose runs are finished; nothing where there are none."""
    if rule == "leave-one-domain-out":
        draws = paired_draws(plan, condition)
    else:
        folders = [(run.draw, run.folder) for run in plan.draws[condition]]
        draws = [Draw(number, folder) for number, folder in folders if folder.finished]
    if not draws:
        return None
    candidate = choose_draw(rule, draws)
    run = plan.draws[condition][candidate.draw]
    return Chosen(rule, run, candidate, tuple(draw.number for draw in draws))


def _results(
    dataset: str, rule: str, chosen: Sequence[Chosen], merged: Sequence[MergedRow]
) -> list[RunResult]:
    """The results of the chosen draws on a dataset, each with the one checkpoint that counts;
    merged models follow where a draw was chosen."""
    found: list[RunResult] = []
    for each in chosen:
        if each.run.condition.dataset == dataset and each.run.folder.finished:
            result, recorded = each.run.result, each.candidate.recorded
            name = "oracle" if rule == "oracle" else recorded
            found.append(result.model_copy(update={"rules": {name: result.under(recorded)}}))
    beside = [row.result for row in merged if row.condition.dataset == dataset]
    return [*found, *beside] if found else []


def _tables(
    plan: Plan, dataset: str, rule: str, results: Sequence[RunResult], missing: Sequence[Missing]
) -> list[Table]:
    """The three tables of a dataset. Where draws were compared, rule and number of draws belong to
    every number; one draw is as the runs themselves."""
    recorded = next(iter(results[0].rules))
    built = build_tables(results, recorded, plan.expected(dataset))
    gaps = [each for each in missing if each.run.condition.dataset == dataset]
    tables = []
    for table in built:
        own = rule_note(recorded, table.metric)
        about = _about(plan, rule, gaps)
        notes = (*about, *(note for note in table.notes if _is_one_draw(plan, rule) or note != own))
        title = _title(table, plan, rule)
        tables.append(replace(table, title=title, rule=rule, notes=notes))
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


def _is_one_draw(plan: Plan, rule: str) -> bool:
    """Whether a rule only chooses the step of each run."""
    return rule != "leave-one-domain-out" and len(plan.draws) == len(plan.singles)


def _title(table: Table, plan: Plan, rule: str) -> str:
    if _is_one_draw(plan, rule):
        return table.title
    return f"{table.title}, {_best_of(plan).lower()} by rule {rule}"


def _about(plan: Plan, rule: str, missing: Sequence[Missing]) -> list[str]:
    about = []
    if not _is_one_draw(plan, rule):
        about = [f"{_best_of(plan)} for each column and seed; rule {rule}: {_meaning(plan, rule)}."]
    states = Counter(each.state for each in missing)
    if states:
        parts = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        about.append(f"Without a result: {parts} (chosen.json names the runs).")
    return about


def _note(plan: Plan, rule: str) -> str:
    """What a report on the chosen runs has to say of the choice."""
    if _is_one_draw(plan, rule):
        return ""
    return f"{_best_of(plan)}, chosen by rule {rule}: {_meaning(plan, rule)}."


def _meaning(plan: Plan, rule: str) -> str:
    return meaning(rule, plan.metric, DRAW_RULES)


def _best_of(plan: Plan) -> str:
    numbers = sorted({len(draws) for draws in plan.draws.values()})
    return "One draw" if numbers == [1] else f"Best of {' or '.join(map(str, numbers))} draws"


def _describe(results: SweepResults) -> dict[str, Any]:
    """The content of `chosen.json`."""
    plan = results.plan
    return {
        "format": FORMAT,
        "sweep": plan.name,
        "settings": plan.sweep.model_dump(mode="json"),
        "rules": {rule: _meaning(plan, rule) for rule in plan.rules},
        "chosen": [_describe_choice(plan, each) for each in results.chosen],
        "missing": [
            {**_describe_run(each.run), "state": each.state, "error": each.error}
            for each in results.missing
        ],
        "merged": [
            {**row.condition._asdict(), "row": row.result.method, "run": row.folder.path.name}
            for row in results.merged
        ],
    }


def _describe_choice(plan: Plan, each: Chosen) -> dict[str, Any]:
    step = None
    if each.run.folder.finished:
        step = each.run.result.under(each.candidate.recorded).step
    everyone = [run.draw for run in plan.draws[each.run.condition]]
    return {
        "rule": each.rule,
        **_describe_run(each.run),
        "score": each.candidate.score,
        "step": step,
        "compared": len(each.compared),
        "left_out": [draw for draw in everyone if draw not in each.compared],
    }


def _describe_run(run: PlannedRun) -> dict[str, Any]:
    return {
        **run.condition._asdict(),
        "draw": run.draw,
        "settings": run.values,
        "run": run.path.name,
    }
