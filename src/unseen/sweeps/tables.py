"""After a sweep: what each rule chooses, as tables and as a file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import write_json
from unseen.reports.figures.figure import Figure
from unseen.reports.formats import records, write_table, write_tables
from unseen.reports.shown import Shown, bars, result_html
from unseen.reports.tables import Table, build_tables, notes_once, summarize
from unseen.results.files import FORMAT
from unseen.results.folder import RunList, safe_name, write_run_list
from unseen.results.result import RuleResult, RunResult
from unseen.results.rules import DRAW_RULES, meaning, rule_note
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan
from unseen.sweeps.rules import Chosen, best_draws, state_of
from unseen.sweeps.workers import Outcome


class Missing(NamedTuple):
    """A run of the plan without a result, and why."""

    run: PlannedRun
    state: str
    error: str


@dataclass(frozen=True)
class Comparison(Shown):
    """What was chosen from the runs of a sweep or a comparison, and what could not be compared."""

    plan: Plan
    chosen: list[Chosen]
    missing: list[Missing]
    merged: Sequence[PlannedRun]
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
        return [each.run.result for each in _finished(self.chosen, self.plan.rule)]

    @property
    def folders(self) -> list[Path]:
        """The run folders of these results."""
        return [each.run.path for each in _finished(self.chosen, self.plan.rule)]

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
            f"{len(lines)} of {len(self.plan.distinct)} runs failed; {again} tries them again, and "
            "keeps the others:\n  " + "\n  ".join(lines)
        )

    def records(self) -> list[dict[str, Any]]:
        """Return the numbers of `shown`, in percent: a row for each method, column and view."""
        return [record for table in self.shown for record in records(table)]

    def as_json(self) -> dict[str, Any]:
        """Return the tables with their notes, and where everything is, as plain data."""
        keys = ("title", "dataset", "view", "rule", "metric", "notes")
        tables = [
            {key: getattr(table, key) for key in keys} | {"numbers": list(records(table))}
            for table in self.shown
        ]
        runs = [str(path) for path in self.folders]
        return {"tables": tables, "runs": runs, "home": str(self.home), "failures": self.failures}

    def plot(self) -> Figure:
        """Return bars of accuracy on unseen domains, method by method."""
        return bars(self.shown[0])

    def _repr_html_(self) -> str:
        return "".join(map(result_html, notes_once(self.shown)))

    def write(self) -> None:
        """Write tables, the lists of their runs, and `chosen.json`, below `RUNS/tables`."""
        several = len(_datasets(self.plan)) > 1
        for rule, by_dataset in self.by_dataset.items():
            folder = self.home / rule
            rows = [each.run for each in _finished(self.chosen, rule)]
            rows += [row for row in self.merged if rule in row.result.rules]
            listed = {row.path: row.condition.method for row in rows}
            names = tuple(listed.values())
            write_run_list(folder, RunList(tuple(listed), _choice(self.plan, rule), names))
            for dataset, tables in by_dataset.items():
                write_tables(tables, folder / safe_name(dataset) if several else folder)
            if rule in self.summaries:
                write_table(self.summaries[rule], folder, "summary")
        write_json(self.home / "chosen.json", self._description())

    def _description(self) -> dict[str, Any]:
        """Return the content of `chosen.json`."""
        plan, chosen = self.plan, []
        for each in self.chosen:
            compared, run = {*each.compared}, each.run
            draws = [other.draw for other in plan.draws[run.condition]]
            chosen.append(
                {
                    "rule": each.rule,
                    **_describe_run(run),
                    "score": each.score,
                    "step": _checkpoint(each).step if run.folder.finished else None,
                    "compared": len(compared),
                    "left_out": [draw for draw in draws if draw not in compared],
                }
            )
        return {
            "format": FORMAT,
            "sweep": Path(plan.name).stem,
            "settings": plan.sweep.model_dump(mode="json"),
            "rules": {rule: meaning(rule, plan.metric, DRAW_RULES) for rule in plan.rules},
            "chosen": chosen,
            "missing": [
                {**_describe_run(each.run), "state": each.state, "error": each.error}
                for each in self.missing
            ],
            "merged": [{**row.condition._asdict(), "run": row.path.name} for row in self.merged],
        }


def apply_rules(
    plan: Plan,
    outcomes: Mapping[Path, Outcome] | None = None,
    merged: Sequence[PlannedRun] = (),
) -> Comparison:
    """Choose among the draws by every rule, and put the results into tables. Merged models stand in
    those of the rules that their weights were chosen by."""
    missing = list(_missing(plan, outcomes or {}))
    best = [best_draws(plan.rules, each, plan.partners.get(c)) for c, each in plan.draws.items()]
    everything: list[Chosen] = []
    tables: dict[str, dict[str, list[Table]]] = {}
    summaries: dict[str, Table] = {}
    for rule in plan.rules:
        chosen = [found[rule] for found in best if rule in found]
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
    return Comparison(plan, everything, missing, merged, tables, summaries)


def _finished(chosen: Sequence[Chosen], rule: str) -> Iterator[Chosen]:
    """Yield the choices of a rule whose runs are finished: with pairs, a winner may not be yet."""
    return (each for each in chosen if each.rule == rule and each.run.folder.finished)


def _datasets(plan: Plan) -> list[str]:
    return list(dict.fromkeys(condition.dataset for condition in plan.draws))


def _missing(plan: Plan, outcomes: Mapping[Path, Outcome]) -> Iterator[Missing]:
    """Yield runs without a result. A run whose process died left no word itself: the outcomes have
    it."""
    for run in plan.distinct:
        if not run.folder.finished:
            failure, outcome = run.folder.read_failure(), outcomes.get(run.path)
            error = (outcome and outcome.error) or (failure["error"] if failure else "")
            state = state_of(run.folder)
            yield Missing(run, "failed" if error and state != "stopped" else state, error)


def _checkpoint(chosen: Chosen) -> RuleResult:
    return chosen.run.result.under(chosen.recorded)


def _results(
    dataset: str, rule: str, chosen: Sequence[Chosen], merged: Sequence[PlannedRun]
) -> list[RunResult]:
    """Return the results of the chosen draws on a dataset, each with the one checkpoint that
    counts; merged models follow where a draw was chosen."""
    found: list[RunResult] = []
    for each in _finished(chosen, rule):
        if each.run.condition.dataset == dataset:
            kept = {"oracle" if rule == "oracle" else each.recorded: _checkpoint(each)}
            found.append(each.run.result.model_copy(update={"rules": kept}))
    beside = [row.result for row in merged if row.condition.dataset == dataset]
    return [*found, *beside] if found else []


def _tables(
    plan: Plan, dataset: str, rule: str, results: Sequence[RunResult], missing: Sequence[Missing]
) -> list[Table]:
    """Return the three tables of a dataset. Where draws were compared, rule and number of draws
    belong to every number; one draw is as the runs themselves."""
    recorded = next(iter(results[0].rules))
    tables = build_tables(results, recorded, plan.expected(dataset))
    about = _about(plan, rule, [each for each in missing if each.run.condition.dataset == dataset])
    own = rule_note(recorded, tables[0].metric) if _compares(plan, rule) else ""
    found: list[Table] = []
    for table in tables:
        notes = (*about, *(note for note in table.notes if note != own))
        title = f"{table.title}{_title(plan, rule)}"
        found.append(replace(table, title=title, rule=rule, notes=notes))
    return found


def _summary(
    plan: Plan,
    rule: str,
    by_dataset: Mapping[str, Sequence[RunResult]],
    missing: Sequence[Missing],
) -> Table:
    """Columns are called by the datasets themselves, unless recipes of several are of one."""
    names = {part.dataset: part.experiment.data.name for part in plan.parts}
    if len(set(names.values())) < len(names):
        names = {family: family for family in names}
    results = {names[family]: results for family, results in by_dataset.items()}
    expected = {names[family]: plan.expected(family) for family in by_dataset}
    table = summarize(results, expected, rule, _about(plan, rule, missing))
    return replace(table, title=f"{table.title}{_title(plan, rule)}")


def _compares(plan: Plan, rule: str) -> bool:
    """Whether a rule chooses among draws, and not only the step of each run."""
    return rule == "leave-one-domain-out" or len(plan.draws) < len(plan.singles)


def _title(plan: Plan, rule: str) -> str:
    return f", {_best_of(plan).lower()} by rule {rule}" if _compares(plan, rule) else ""


def _about(plan: Plan, rule: str, missing: Sequence[Missing]) -> list[str]:
    about = [choice] if (choice := _choice(plan, rule)) else []
    if missing:
        states = sorted(Counter(each.state for each in missing).items())
        parts = ", ".join(f"{number} {state}" for state, number in states)
        about.append(f"Without a result: {parts} (chosen.json names the runs).")
    return about


def _choice(plan: Plan, rule: str) -> str:
    """Return how a rule chose among draws; nothing where it only chose the step of each run."""
    if not _compares(plan, rule):
        return ""
    how = f"chosen by rule {rule}: {meaning(rule, plan.metric, DRAW_RULES)}"
    return f"{_best_of(plan)} for each column and seed, {how}."


def _best_of(plan: Plan) -> str:
    numbers = sorted({len(draws) for draws in plan.draws.values()})
    return "One draw" if numbers == [1] else f"Best of {' or '.join(map(str, numbers))} draws"


def _describe_run(run: PlannedRun) -> dict[str, Any]:
    about = {"draw": run.draw, "settings": run.values, "run": run.path.name}
    return {**run.condition._asdict(), **about}
