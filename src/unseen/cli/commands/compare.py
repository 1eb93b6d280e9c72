"""Hold out each domain in turn: train on the others, test on it; every method and seed.

Prints the out-of-domain, in-domain and known-domain tables and saves them as CSV, Markdown and
LaTeX. Everything is checked before the first run. Finished runs are skipped and unfinished ones
resumed, so the same command continues where it was.

  unseen compare digits
  unseen compare pacs --methods aggregate,multihead,dmg --seeds 0,1,2 --backbone resnet18
  unseen compare folder data.root=my_images steps=500
  unseen compare pacs --seeds 0-2 --merge
  unseen compare pacs --methods aggregate,dmg --upper-bound
  unseen compare pacs --workers 1 --cpus 4 --dry-run
"""

import argparse

from rich.console import Console

from unseen.cli.run_options import (
    add_log_option,
    add_merge_options,
    add_run_options,
    chosen_resources,
    show_plan,
)
from unseen.settings.experiment import parse_seeds
from unseen.settings.recipes import parse_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="a dataset with recipes: 'unseen list recipes'")
    parser.add_argument(
        "--methods",
        default="aggregate,multihead,dmg",
        help="the first is the reference; 'all' for every one",
    )
    parser.add_argument("--seeds", default="0", help="for example 0,1,2 or 0-4")
    parser.add_argument("--backbone", help="another network for all methods")
    parser.add_argument(
        "--unseen",
        default="",
        help="hold out these domains only: a,b one after the other, a+b both at once",
    )
    parser.add_argument(
        "--upper-bound",
        action="store_true",
        help="add a row of one network that is trained on the unseen domain's labels, too",
    )
    add_log_option(parser)
    add_merge_options(parser, "all seeds of a method and domain")
    add_run_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings for all runs")


def run(chosen: argparse.Namespace) -> int:
    from unseen.reports.terminal import to_rich
    from unseen.reports.tracking import choose_trackers
    from unseen.sweeps.compare import plan_comparison, run_comparison
    from unseen.sweeps.merged_rows import check_mergeable
    from unseen.training.devices import is_first_process

    trackers = choose_trackers(chosen.log)
    resources = chosen_resources(chosen, retries=1)
    plan = plan_comparison(
        chosen.dataset,
        chosen.methods,
        parse_seeds(chosen.seeds),
        chosen.backbone,
        chosen.unseen,
        parse_overrides(chosen.overrides),
        chosen.upper_bound,
    )
    if chosen.merge:
        check_mergeable(plan)
    if chosen.dry_run:
        show_plan(plan, chosen.runs, resources)
        return 0
    quiet = not is_first_process()
    console, warnings = Console(quiet=quiet), Console(stderr=True, quiet=quiet)
    comparison = run_comparison(plan, chosen.runs, resources, trackers, warnings, chosen.merge)
    for table in comparison.tables:
        console.print(to_rich(table, console.width))
    if comparison.files:
        folder = comparison.files[0].parent
        saved = f"Tables as CSV, Markdown and LaTeX: {folder}"
        console.print(saved, highlight=False, soft_wrap=True)
    if comparison.missing:
        warnings.print(comparison.failures, markup=False, highlight=False, soft_wrap=True)
    return 1 if comparison.missing else 0
