"""Comparisons and sweeps, from their settings to their tables.

A comparison holds out one domain after the other, for every method and seed; a sweep does so for
several draws of settings.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from rich.console import Console

from unseen.errors import UnseenError
from unseen.reports.trackers import Subject, Trackers, choose_trackers
from unseen.settings.typed import Overrides, SweepKeys
from unseen.sweeps.merge import Choice
from unseen.sweeps.plan import Plan, plan_sweep
from unseen.sweeps.sweep_file import load_sweep, make_comparison
from unseen.sweeps.tables import Comparison, apply_rules
from unseen.sweeps.train import check_mergeable, merge_plan, resources_for, run_plan
from unseen.training.devices import is_first_process
from unseen.training.display import progress_console


def compare(
    dataset: str,
    *,
    methods: str | Sequence[str] = ("aggregate", "multihead", "dmg"),
    seeds: str | Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    workers: int | None = 0,
    merge: Choice | None = None,
    upper_bound: bool = False,
    console: Console | None = None,
    **overrides: Unpack[Overrides],
) -> Comparison:
    """Train on all domains but one, test on that one; every domain, method and seed.

    Each method starts from its recipe `dataset/method`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; a run that fails does not keep the others
    from training, and is named in the error that is raised at the end. The tables of the runs' own
    selection rule are in `shown`, those of every rule in `tables`.

    Names may be given as a list or as text with commas, `all` being every method; `unseen`
    restricts which domains are held out, one after the other, or several at once (`a+b`). `workers`
    is how many processes train (None: as many as there are cores); 0 trains in this process. A
    script that asks for workers has to guard its own code by `if __name__ == "__main__":`, because
    they import it. `merge` adds a row for each method: one model for each domain, the seeds merged
    as `unseen.merge` does (`all` or `greedy`). `upper_bound` adds a row that is trained on labels
    of the unseen domain, too.
    """
    compared = make_comparison(dataset, methods, seeds, backbone, unseen, overrides, upper_bound)
    plan, options = plan_sweep(compared, "", runs), {"workers": workers}
    results = run_sweep(plan, options, console, together=False, log=log, merge=merge)
    if results.failed:
        raise UnseenError(results.failures)
    return results


def sweep(
    source: str | Path,
    *,
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    workers: int | None = 0,
    merge: Choice | None = None,
    console: Console | None = None,
    **overrides: Unpack[SweepKeys],
) -> Comparison:
    """Train all runs of a sweep, and apply every selection rule to its draws.

    `source` is a sweep file or the name of a shipped one; overrides are its keys:
    `sweep("digits", draws=5, settings={"steps": 100})`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; runs that failed are in `missing`.

    `workers` and `log` are as in `compare`; `merge` adds a row for each method: the draws of a seed
    (without draws: the seeds) merged as `unseen.merge` does (`all` or `greedy`).
    """
    plan = plan_sweep(load_sweep(source, overrides), str(source), runs)
    options = {"workers": workers}
    return run_sweep(plan, options, console, together=True, log=log, merge=merge)


def run_sweep(
    plan: Plan,
    options: Mapping[str, Any],
    console: Console | None = None,
    *,
    together: bool,
    log: str | Sequence[str] = (),
    merge: Choice | None = None,
) -> Comparison:
    """Train what is not finished, and write the tables of what is.

    `options` are fields of `Resources`, None standing for the default. With `together`, runs on
    stored features are trained together; one by one they equal those of `unseen train` to the last
    bit, and each has its own trackers.
    """
    trackers = choose_trackers(log)
    if merge:
        check_mergeable(plan)
    console = console or progress_console()
    if plan.is_comparison:  # the same command tries again what failed before
        for run in plan.singles:
            run.folder.failure.unlink(missing_ok=True)
    resources = resources_for(plan, options)
    together = together and not trackers
    outcomes = run_plan(plan, resources, console, together=together, log=trackers)
    merged = list(merge_plan(plan, merge, console)) if merge else []
    results = apply_rules(plan, outcomes, merged)
    if is_first_process() and results.chosen:
        results.write()
        _send_tables(trackers, results, console)
    return results


def _send_tables(names: Sequence[str], results: Comparison, console: Console) -> None:
    """The entry of the tables in each tracker, beside those of the runs."""
    if names:
        home = results.home.name
        subject = Subject(home, home[-8:], {"tables": home}, results.plan.runs)
        warn = partial(console.print, highlight=False, markup=False, soft_wrap=True)
        trackers = Trackers(names, subject, warn)
        for table in results.shown:
            trackers.table(table)
        trackers.close(finished=True)
