"""A sweep from its file to its tables: every run trained, then every selection rule applied."""

from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.sweeps.draws import load_sweep
from unseen.sweeps.jobs import Resources
from unseen.sweeps.merge import Choice
from unseen.sweeps.merged_rows import check_mergeable, merge_plan
from unseen.sweeps.plan import plan_sweep
from unseen.sweeps.resources import default_gpus
from unseen.sweeps.tables import SweepResults, write_results
from unseen.sweeps.train_plan import run_plan


def sweep(
    source: str | Path,
    *,
    runs: str | Path = "runs",
    workers: int | None = 0,
    merge: Choice | None = None,
    console: Console | None = None,
    **overrides: Any,
) -> SweepResults:
    """Train all runs of a sweep, and apply every selection rule to its draws.

    `source` is a sweep file or the name of a shipped one; overrides are its keys:
    `sweep("digits", draws=5, settings={"steps": 100})`. Everything is checked before the first run.
    Finished runs are skipped, unfinished ones resumed; runs that failed are in `missing`.

    `workers` is how many processes train (None: as many as there are cores); 0 trains in this
    process. A script that asks for workers has to guard its own code by
    `if __name__ == "__main__":`, because they import it. `merge` adds a row for each method: the
    draws of a seed (without draws: the seeds) merged as `unseen.merge` does (`all` or `greedy`).
    """
    checked = load_sweep(source, overrides)
    resources = Resources(workers=workers, gpus=default_gpus(), retries=checked.retries)
    plan = plan_sweep(checked, str(source))
    if merge:
        check_mergeable(plan)
    outcomes = run_plan(plan, Path(runs), resources, console, together=True)
    merged = merge_plan(plan, Path(runs), merge, console)
    return write_results(plan, Path(runs), outcomes, merged)
