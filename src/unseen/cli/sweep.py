"""The commands `compare` and `sweep`: what is trained, where, and what it would cost."""

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console

from unseen.cli import shared
from unseen.cli.shared import Add, next_step, say, say_json
from unseen.errors import SettingsError
from unseen.settings.recipes import parse_overrides

if TYPE_CHECKING:
    from unseen.settings.experiment import Experiment
    from unseen.sweeps.cost import ImageTimes
    from unseen.sweeps.plan import Plan
    from unseen.sweeps.sweep_file import Sweep


def add_compare(add: Add) -> None:
    add("dataset", "a dataset with recipes: 'unseen list recipes'")
    first = "the first is the baseline of the others; 'all' for every one"
    add("--methods", first, default="aggregate,multihead,dmg")
    add("--seeds", "for example 0,1,2 or 0-4", default="0")
    add("--backbone", "another network for all methods", metavar="BACKBONE")
    only = "leave out only these domains: a,b one after the other, a+b both at once"
    add("--unseen", only, default="")
    add("--upper-bound", "add a row that is also trained on labels of the unseen domain")
    _add_run_options(add, "all seeds of a method and domain")
    shared.add_settings(add, "settings for all runs")


def run_compare(chosen: argparse.Namespace) -> int:
    """Leave out each domain in turn: train every method on the others, and test it there.

    Prints the out-of-domain, in-domain and known-domain tables and saves them as CSV, Markdown and
    LaTeX. Everything is checked before the first run; the same command continues where it stopped.

      unseen compare digits
      unseen compare pacs --methods aggregate,multihead,dmg --seeds 0,1,2 --backbone resnet18
      unseen compare folder data.root=my_images steps=500
      unseen compare pacs --seeds 0-2 --merge
      unseen compare pacs --methods aggregate,dmg --upper-bound
      unseen compare pacs --workers 1 --cpus 4 --dry-run
    """
    from unseen.sweeps.sweep_file import make_comparison

    words = ("dataset", "methods", "seeds", "backbone", "unseen", "upper_bound")
    own = {word: getattr(chosen, word) for word in words}
    sweep = make_comparison(**own, overrides=parse_overrides(chosen.overrides))
    return _run(sweep, "", chosen, together=False)


def add_sweep(add: Add) -> None:
    add("sweep", "a sweep file, or 'unseen list sweeps'", metavar="FILE|NAME")
    shared.add_settings(add, "keys of the sweep file: draws=20 seeds=0-2 settings.steps=500")
    _add_run_options(add, "all draws of a seed (without draws: of all seeds)")
    add("--one-by-one", "do not train runs on stored features as a stack")


def run_sweep(chosen: argparse.Namespace) -> int:
    """Train many runs: unseen domains, seeds, and draws of hyper-parameters.

    Selection rules then choose among draws; only the oracle sees labels of the unseen domain. The
    same command continues where it stopped.

      unseen sweep digits --dry-run
      unseen sweep pacs draws=20 seeds=0-2 methods=aggregate,dmg
      unseen sweep pacs pairs=all settings.steps=500 --workers 4
      unseen sweep pacs draws=8 --merge greedy
      unseen sweep domainbed --dry-run
      unseen sweep mine.yaml --on ray --address ADDRESS --gpus 0.5
    """
    from unseen.sweeps.sweep_file import load_sweep

    sweep = load_sweep(chosen.sweep, parse_overrides(chosen.overrides))
    return _run(sweep, chosen.sweep, chosen, together=not chosen.one_by_one)


def _add_run_options(add: Add, merged: str) -> None:
    """Options of both commands; `merged` is what one model is made of."""
    shared.add_runs(add)
    about = (
        f"add rows of merged models: the averaged weights of {merged}; greedy: without runs that "
        "make the average worse on validation images"
    )
    add("--merge", about, nargs="?", const="all", choices=("all", "greedy"))
    add("--on", "where runs train", choices=("here", "ray"), default="here")
    about = (
        "runs at the same time, each in its own process; left out: as many as the cores allow; "
        "0: one after the other in this process"
    )
    add("--workers", about, type=shared.at_least(0))
    add("--cpus", "cores, and therefore threads, of a run", type=shared.at_least(0.1), default=1.0)
    share = "GPUs of a run, such as 0.5; left out: 1 if this machine has any"
    add("--gpus", share, type=shared.at_least(0.0))
    add("--address", shared.ADDRESS, metavar="ADDRESS")
    add("--retries", "how often a failed run is tried again", type=shared.at_least(0))
    add("--dry-run", "list the runs, estimate their cost, train nothing")


def _run(sweep: "Sweep", name: str, chosen: argparse.Namespace, together: bool) -> int:
    """Train what is not finished and print the tables; or only say what that would cost. Mistakes
    in settings are told before torch is loaded."""
    from unseen.sweeps.plan import plan_sweep

    if chosen.address and chosen.on != "ray":
        raise SettingsError("--address is that of a Ray cluster; add --on ray")
    if chosen.json and chosen.dry_run:
        raise SettingsError("--json prints results, and a dry run has none; leave one of them out")
    if chosen.workers == 0 and chosen.on == "ray":
        raise SettingsError("--workers 0 trains in this process; leave it or --on ray out")
    plan = plan_sweep(sweep, name, chosen.runs)
    words = ("on", "workers", "cpus", "gpus", "retries", "address")
    options = {word: getattr(chosen, word) for word in words}
    if chosen.dry_run:
        _show_cost(plan, chosen, options)
        return 0

    with shared.loading():
        from unseen.reports.terminal import show_tables
        from unseen.sweeps.train import run_sweep
        from unseen.training.devices import is_first_process

    quiet = not is_first_process()
    console, aside = Console(quiet=quiet), Console(stderr=True, quiet=quiet)
    how = {"together": together, "log": chosen.log, "merge": chosen.merge}
    results = run_sweep(plan, options, aside, **how)
    if chosen.json and not quiet:
        say_json(results.as_json())
    elif not chosen.json:
        show_tables(results.shown, console)
    if stopped := len(results.missing) - len(results.failed):
        say(f"{stopped} runs were stopped early by successive halving.", aside)
    if results.failures:
        say(results.failures, aside)
    if results.chosen and not quiet:
        say(f"Tables for the rules {', '.join(results.tables)}: {results.home}", aside)
        next_step(f"unseen report {shlex.quote(str(results.home / results.plan.rule))}")
    return 1 if results.failed else 0


def _show_cost(plan: "Plan", chosen: argparse.Namespace, options: dict[str, Any]) -> None:
    """What would be trained, and how long that would take."""
    from unseen.sweeps import cost
    from unseen.sweeps.train import check_mergeable, resources_for
    from unseen.sweeps.workers import count_workers

    console, status = Console(), Console(stderr=True).status("Timing")
    resources = resources_for(plan, options)

    def measure(experiment: "Experiment", domains: int, classes: int) -> "ImageTimes":
        status.update(f"Timing {experiment.method.name} on {experiment.network.name}")
        gpu = resources.gpus > 0
        return cost.time_method(experiment, domains, classes, resources.threads, gpu)

    if chosen.merge:
        check_mergeable(plan)
    if (listed := cost.runs_table(plan)) is not None:
        console.print(listed)
    for remark in plan.remarks:
        say(remark, console)
    with status:
        rows = cost.estimate(plan, measure)
    console.print(cost.cost_table(rows))
    say(cost.cost_summary(rows, max(1, count_workers(resources))), console)
