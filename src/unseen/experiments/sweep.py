"""A sweep from its file to its tables: every run trained, then every selection rule applied."""

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.experiments.choose.results import SweepResults, write_results
from unseen.experiments.plan import Plan, plan_sweep
from unseen.experiments.progress import PlanDisplay
from unseen.experiments.run.jobs import Resources
from unseen.experiments.run.resources import default_gpus
from unseen.experiments.run.run_jobs import run_jobs
from unseen.experiments.sweep_file import load_sweep
from unseen.experiments.train_plan import train_plan


def sweep(
    source: str | Path,
    *,
    runs: str | Path = "runs",
    workers: int | None = 0,
    console: Console | None = None,
    **overrides: Any,
) -> SweepResults:
    """Train all runs of a sweep, and apply every selection rule to its draws.

    `source` is a sweep file or the name of a shipped one; overrides are its keys:
    `sweep("digits", draws=5, settings={"steps": 100})`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; runs that failed are in `missing`.

    `workers` is how many processes train (None: as many as there are cores); 0 trains in this
    process. A script that asks for workers has to guard its own code by
    `if __name__ == "__main__":`, because they import it.
    """
    checked = load_sweep(source, overrides)
    resources = Resources(workers=workers, gpus=default_gpus(), retries=checked.retries)
    plan = plan_sweep(checked, str(source))
    return run_sweep(plan, Path(runs), resources, together=True, console=console)


def run_sweep(
    plan: Plan,
    runs: Path,
    resources: Resources,
    *,
    together: bool,
    console: Console | None = None,
) -> SweepResults:
    """Train what is not finished; write tables and `chosen.json` of what is."""
    with PlanDisplay(console or Console(stderr=True), plan, runs) as display:
        executor = partial(run_jobs, resources=resources, watcher=display)
        outcomes = train_plan(plan, runs, executor, together=together)
    return write_results(plan, runs, outcomes)
