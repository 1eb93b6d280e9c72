"""The main job: hold out one domain after the other, for every method and seed; then the tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.errors import SettingsError, UnseenError
from unseen.reports.formats import write_tables
from unseen.reports.tables import Table, build_tables
from unseen.reports.tracking import Subject, Trackers, choose_trackers
from unseen.results.folder import write_run_list
from unseen.results.result import UPPER_BOUND, RunResult
from unseen.settings.experiment import as_list
from unseen.settings.recipes import nested
from unseen.sweeps.draws import MethodPart, Sweep
from unseen.sweeps.jobs import Resources
from unseen.sweeps.merge import Choice
from unseen.sweeps.merged_rows import check_mergeable, merge_plan, with_merged
from unseen.sweeps.plan import Plan, make_plan
from unseen.sweeps.resources import default_gpus
from unseen.sweeps.tables import Missing, list_runs, missing_runs
from unseen.sweeps.train_plan import run_plan
from unseen.training.devices import is_first_process, is_launched

_BOUND = MethodPart(
    variant_of="aggregate",
    settings={
        "data": {"train_on_unseen": True},
        "setting": "generalization",
        "target_images": None,
    },
)
"""What `--upper-bound` adds: one network that gets the labels of the unseen domain, too."""

_CHOSEN = {"data.name": "DATASET", "method.name": "--methods", "seed": "--seeds"}


@dataclass(frozen=True)
class Comparison:
    """The finished runs of a comparison, the tables made of them, and what is missing."""

    results: list[RunResult]
    tables: list[Table]
    files: list[Path]
    folders: list[Path]
    missing: list[Missing]
    merged: list[Path] = field(default_factory=list)
    """Folders of the merged models, which have rows of their own."""

    @property
    def failures(self) -> str:
        """What failed, and how to continue; empty if nothing did."""
        if not self.missing:
            return ""
        lines = [f"{each.folder.path.name}: {each.error}" for each in self.missing]
        return (
            f"{len(lines)} of {len(lines) + len(self.folders)} runs failed; the same command tries "
            "them again, and keeps the others:\n  " + "\n  ".join(lines)
        )


def compare(
    dataset: str,
    *,
    methods: str | Sequence[str] = ("aggregate", "multihead", "dmg"),
    seeds: Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    workers: int | None = 0,
    merge: Choice | None = None,
    upper_bound: bool = False,
    console: Console | None = None,
    **overrides: Any,
) -> Comparison:
    """Train on all domains but one, test on that one; every domain, method and seed.

    Each method starts from its recipe `dataset/method`, or from `dataset/aggregate` with the
    method's own defaults. Everything is checked before the first run. Finished runs are skipped,
    unfinished ones resumed; a run that fails does not keep the others from training, and is named
    in the error that is raised at the end.

    Names may be given as a list or as text with commas, `all` being every method; `unseen`
    restricts which domains are held out, one after the other, or several at once (`a+b`). `workers`
    is how many processes train (None: as many as there are cores); 0 trains in this process. A
    script that asks for workers has to guard its own code by `if __name__ == "__main__":`, because
    they import it. `merge` adds a row for each method: one model for each domain, the seeds merged
    as `unseen.merge` does (`all` or `greedy`). `upper_bound` adds a row that is trained on labels
    of the unseen domain, too.
    """
    trackers = choose_trackers(log)
    plan = plan_comparison(dataset, methods, seeds, backbone, unseen, overrides, upper_bound)
    if merge:
        check_mergeable(plan)
    resources = Resources(workers=workers, gpus=default_gpus(), retries=0)
    found = run_comparison(plan, Path(runs), resources, trackers, console, merge)
    if found.missing:
        raise UnseenError(found.failures)
    return found


def plan_comparison(
    dataset: str,
    methods: str | Sequence[str],
    seeds: Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    upper_bound: bool = False,
) -> Plan:
    """A sweep of one draw, the recipe as it is."""
    methods = tuple(as_list(methods))
    if not methods or not seeds:
        raise SettingsError("a comparison needs at least one method and one seed")
    sweep = Sweep(
        datasets=(dataset,),
        methods=(*methods, UPPER_BOUND) if upper_bound else methods,
        backbones=() if backbone is None else (backbone,),
        unseen=tuple(as_list(unseen)),
        seeds=tuple(seeds),
        settings=nested(overrides or {}),
        by_method={UPPER_BOUND: _BOUND} if upper_bound else {},
    )
    return make_plan(sweep, "", "this comparison cannot be trained", _CHOSEN)


def run_comparison(
    plan: Plan,
    runs: Path,
    resources: Resources,
    log: tuple[str, ...] = (),
    console: Console | None = None,
    merge: Choice | None = None,
) -> Comparison:
    """Train what is not finished, and write the tables of what is.

    Runs on stored features are trained one by one, unlike those of a sweep: then they equal those
    of `unseen train` to the last bit, and each has its own checkpoints and trackers.
    """
    console = console or Console(stderr=True)
    several = any(run.experiment.devices.number > 1 for run in plan.singles)
    if is_launched() or (several and resources.workers is None and resources.on == "here"):
        resources = resources._replace(on="here", workers=0)
    for run in plan.singles:  # the same command tries again what failed before
        run.folder(runs).failure.unlink(missing_ok=True)
    outcomes = run_plan(plan, runs, resources, console, together=False, log=log)
    finished = [run for run in plan.singles if run.folder(runs).finished]
    missing = missing_runs(plan, runs, outcomes)
    results = [run.read_result(runs) for run in finished]
    if not results:
        return Comparison([], [], [], [], missing)
    (dataset,) = plan.sweep.datasets
    rows = merge_plan(plan, runs, merge, console)
    shown = [*results, *(row.result for row in rows)]
    tables = build_tables(shown, plan.singles[0].experiment.selection, plan.expected(dataset))
    home = runs / "tables" / plan.folder_name
    paths = [run.folder(runs).path for run in finished]
    files: list[Path] = []
    if is_first_process():
        files = write_tables(tables, home)
        write_run_list(home, with_merged(list_runs(finished, runs), rows))
        _send_tables(log, tables, home, console)
    return Comparison(results, tables, files, paths, missing, [row.folder.path for row in rows])


def _send_tables(names: Sequence[str], tables: list[Table], home: Path, console: Console) -> None:
    """The comparison's own entry in each tracker, beside those of its runs."""
    if names:
        settings = {"tables": home.name}
        subject = Subject(home.name, home.name[-8:], settings, home.parent.parent)
        warn = partial(console.print, highlight=False, markup=False, soft_wrap=True)
        trackers = Trackers(names, subject, warn)
        for table in tables:
            trackers.table(table)
        trackers.close(finished=True)
