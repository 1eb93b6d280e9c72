"""Options that commands which train share: where runs are trained, and what they would cost."""

import argparse
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.errors import SettingsError

if TYPE_CHECKING:
    from unseen.settings.experiment import Experiment
    from unseen.sweeps.draws import Sweep
    from unseen.sweeps.jobs import Resources
    from unseen.sweeps.plan import Plan
    from unseen.training.timing import ImageTimes, RunTimes


def add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument("--on", choices=("here", "ray"), default="here", help="where runs train")
    parser.add_argument(
        "--workers",
        type=_count,
        help="runs at once, each in its own process; left out: as many as the cores allow; "
        "0: one after the other in this process",
    )
    parser.add_argument("--cpus", type=_positive, default=1.0, help="cores of a run, its threads")
    parser.add_argument(
        "--gpus",
        type=_number,
        help="GPUs of a run, 0.5 is a share; left out: one where this machine has any",
    )
    parser.add_argument("--address", help="of a running Ray cluster; left out: this machine")
    parser.add_argument("--retries", type=_count, help="how often a failed run is tried again")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the runs, estimate their cost, train nothing"
    )


def add_log_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log",
        default="",
        help="also send records to wandb, tensorboard or mlflow (comma-separated)",
    )


def add_merge_options(parser: argparse.ArgumentParser, what: str) -> None:
    """`what` is merged into one model for each method and domain."""
    options = parser.add_mutually_exclusive_group()
    options.add_argument(
        "--merge",
        action="store_const",
        const="all",
        help=f"add rows of merged models: the weights of {what} averaged into one model",
    )
    options.add_argument(
        "--merge-greedily",
        action="store_const",
        const="greedy",
        dest="merge",
        help="the same, but runs that make the average worse on source validation are left out",
    )


def chosen_resources(chosen: argparse.Namespace, retries: int) -> "Resources":
    from unseen.sweeps.jobs import Resources
    from unseen.sweeps.resources import default_gpus

    if chosen.address and chosen.on != "ray":
        raise SettingsError("--address is that of a Ray cluster; add --on ray")
    if chosen.workers == 0 and chosen.on == "ray":
        raise SettingsError("--workers 0 trains in this process; leave it or --on ray out")
    gpus = default_gpus() if chosen.gpus is None else chosen.gpus
    retries = retries if chosen.retries is None else chosen.retries
    return Resources(chosen.on, chosen.workers, chosen.cpus, gpus, retries, chosen.address)


def show_plan(plan: "Plan", runs: Path, resources: "Resources") -> None:
    """What would be trained, and how long that would take."""
    from unseen.sweeps.cost import cost_summary, cost_table, estimate, runs_table
    from unseen.sweeps.resources import count_workers
    from unseen.training.timing import time_run

    console = Console()
    listed = runs_table(plan, runs)
    if listed is not None:
        console.print(listed)
    for remark in plan.remarks:
        console.print(remark, markup=False, highlight=False, soft_wrap=True)
    with Console(stderr=True).status("Timing") as status:

        @cache
        def announce() -> None:
            status.console.print(
                "Timing a few steps of each kind of run; images and stored features that are not "
                "there yet are made first, and kept for the runs",
                soft_wrap=True,
            )

        def measure(experiment: "Experiment") -> "RunTimes":
            announce()
            status.update(f"Timing {experiment.method.name} on {experiment.network.name}")
            return time_run(experiment, resources.threads, gpu=resources.gpus > 0)

        rows = estimate(plan, runs, measure)
    console.print(cost_table(rows))
    workers = max(1, count_workers(resources))
    console.print(cost_summary(rows, workers), highlight=False, soft_wrap=True)


def show_large(sweep: "Sweep", name: str, resources: "Resources") -> bool:
    """What a sweep would cost whose runs are too many to list, or whose datasets are not all at
    hand; false where every run can be looked at."""
    from unseen.sweeps.cost import absent_summary, cost_summary, cost_table
    from unseen.sweeps.large_plans import LARGE, estimate_parts, outline
    from unseen.sweeps.resources import count_workers
    from unseen.training.timing import time_method

    found = outline(sweep, name)
    if found.runs <= LARGE and not found.absent:
        return False
    console, errors, gpu = Console(), Console(stderr=True), resources.gpus > 0
    errors.print("Timing a step of each method on each network: some seconds for each of them")
    with errors.status("Timing") as status:

        def measure(experiment: "Experiment", n_domains: int, n_classes: int) -> "ImageTimes":
            status.update(f"Timing {experiment.method.name} on {experiment.network.name}")
            return time_method(experiment, n_domains, n_classes, resources.threads, gpu)

        rows = estimate_parts(found.parts, measure)
    console.print(cost_table(rows))
    workers = max(1, count_workers(resources))
    for line in (cost_summary(rows, workers), *absent_summary(found.absent)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return True


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
