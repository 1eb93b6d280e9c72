"""Many runs with an honest protocol: domains held out, seeds, and draws of hyper-parameters.

A sweep is a file or a name ('unseen list sweeps'). Its state is the records on disk: the same
command goes on where it was, whatever ended it. Rules then choose among draws; no rule but the
oracle sees target labels.

  unseen sweep digits --dry-run
  unseen sweep pacs draws=20 seeds=0-2 methods=aggregate,dmg
  unseen sweep pacs pairs=nested settings.steps=500 --workers 4
  unseen sweep mine.yaml --on ray --address ADDRESS --gpus 0.5
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.errors import SettingsError
from unseen.recipe_files import parse_overrides

if TYPE_CHECKING:
    from unseen.experiments.choose.results import Verdict
    from unseen.experiments.plan import Plan
    from unseen.experiments.run.jobs import Means, Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="FILE|NAME", help="a sweep file, or 'unseen list sweeps'")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="keys of the sweep file: draws=20 seeds=0-2 settings.steps=500",
    )
    parser.add_argument("--on", choices=("here", "ray"), default="here", help="where runs compute")
    parser.add_argument("--workers", type=_workers, help="runs at once on this machine")
    parser.add_argument("--cpus", type=_positive, default=1.0, help="cores of a run, its threads")
    parser.add_argument(
        "--gpus",
        type=_number,
        help="GPUs of a run, 0.5 is a share; left out: one where this machine has any",
    )
    parser.add_argument("--address", help="of a running Ray cluster; otherwise this machine")
    parser.add_argument("--retries", type=_count, help="in place of the file's")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument("--dry-run", action="store_true", help="list runs, estimate their cost")
    parser.add_argument(
        "--one-by-one",
        action="store_true",
        help="do not train runs on stored features together (they then agree to the last bit)",
    )


def run(chosen: argparse.Namespace) -> int:
    from unseen.experiments.plan import plan_sweep
    from unseen.experiments.run.jobs import Means
    from unseen.experiments.run.resources import visible_devices
    from unseen.experiments.sweep_file import load_sweep

    if chosen.address and chosen.on != "ray":
        raise SettingsError("--address is that of a Ray cluster; add --on ray")
    sweep = load_sweep(chosen.sweep, parse_overrides(chosen.overrides))
    plan = plan_sweep(sweep, chosen.sweep)
    retries = sweep.retries if chosen.retries is None else chosen.retries
    gpus = float(bool(visible_devices())) if chosen.gpus is None else chosen.gpus
    means = Means(chosen.workers, chosen.cpus, gpus, retries, chosen.address)
    if chosen.dry_run:
        _show_plan(plan, chosen.runs, means)
        return 0
    outcomes = _carry_out(plan, chosen, means)
    return _show_outcome(plan, chosen.runs, outcomes)


def _show_plan(plan: "Plan", runs: Path, means: "Means") -> None:
    from unseen.experiments.cost import estimate
    from unseen.experiments.overview import cost_summary, cost_table, runs_table
    from unseen.experiments.run.resources import count_workers, threads
    from unseen.training.probe import probe

    console, note = Console(), Console(stderr=True)
    listed = runs_table(plan, runs)
    if listed is not None:
        console.print(listed)
    with note.status("Timing a few steps of each kind of run"):
        rows = estimate(
            plan, runs, lambda each: probe(each, threads(means.cpus), gpu=means.gpus > 0)
        )
    console.print(cost_table(rows))
    console.print(cost_summary(rows, count_workers(means)), highlight=False, soft_wrap=True)


def _carry_out(plan: "Plan", chosen: argparse.Namespace, means: "Means") -> list["Outcome"]:
    from unseen.experiments.progress import SweepDisplay
    from unseen.experiments.sweep import Way, carry_out_sweep

    if chosen.on == "ray":
        from unseen.experiments.run.on_ray import run_on_ray as executor
    else:
        from unseen.experiments.run.here import run_here as executor
    console = Console(stderr=True)
    with SweepDisplay(console, plan, chosen.runs) as display:
        way = Way(executor, means, together=not chosen.one_by_one)
        return carry_out_sweep(plan, chosen.runs, way, display.report)


def _show_outcome(plan: "Plan", runs: Path, outcomes: list["Outcome"]) -> int:
    """The table of the sweep's own rule, where the others are, and what went wrong."""
    from unseen.experiments.choose.results import judge
    from unseen.reports.formats import to_rich

    console, warnings = Console(), Console(stderr=True)
    verdict = judge(plan, runs, [outcome for outcome in outcomes if outcome.state == "failed"])
    for table in verdict.tables[plan.sweep.rule]:
        console.print(to_rich(table, console.width))
    rules = ", ".join(verdict.tables)
    console.print(
        f"Tables for the rules {rules}, and chosen.json: {verdict.home}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"As a page: unseen report {verdict.home / plan.sweep.rule}",
        highlight=False,
        soft_wrap=True,
    )
    for line in _what_is_missing(verdict):
        warnings.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if any(each.state != "stopped" for each in verdict.missing) else 0


def _what_is_missing(verdict: "Verdict") -> Iterator[str]:
    stopped = [each for each in verdict.missing if each.state == "stopped"]
    if stopped:
        yield f"{len(stopped)} runs were stopped early by successive halving."
    for each in verdict.missing:
        if each.state != "stopped":
            yield f"{each.state}: {each.trial}: {each.error}\n  {each.folder.path}"


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"should be greater than 0, got {text}")
    return number


def _number(text: str) -> float:
    return 0.0 if float(text) == 0 else _positive(text)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"should be 0 or more, got {text}")
    return number


def _workers(text: str) -> int:
    return int(_positive(str(int(text))))
