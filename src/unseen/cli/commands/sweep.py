"""Many runs with an honest protocol: domains held out, seeds, and draws of hyper-parameters.

A sweep is a file or a name ('unseen list sweeps'). Its state is the records on disk: the same
command continues where it was, whatever ended it. Rules then choose among draws; no rule but the
oracle sees target labels.

  unseen sweep digits --dry-run
  unseen sweep pacs draws=20 seeds=0-2 methods=aggregate,dmg
  unseen sweep pacs pairs=nested settings.steps=500 --workers 4
  unseen sweep pacs draws=8 --merge-greedily
  unseen sweep domainbed --dry-run
  unseen sweep mine.yaml --on ray --address ADDRESS --gpus 0.5
"""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.cli.run_options import (
    add_merge_options,
    add_run_options,
    chosen_resources,
    show_large,
    show_plan,
)
from unseen.settings.recipes import parse_overrides

if TYPE_CHECKING:
    from unseen.reports.tables import Table
    from unseen.sweeps.plan import Plan
    from unseen.sweeps.tables import SweepResults


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="FILE|NAME", help="a sweep file, or 'unseen list sweeps'")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="keys of the sweep file: draws=20 seeds=0-2 settings.steps=500",
    )
    add_merge_options(parser, "all draws of a seed (without draws: of all seeds)")
    add_run_options(parser)
    parser.add_argument(
        "--one-by-one",
        action="store_true",
        help="do not train runs on stored features together (they then agree to the last bit)",
    )


def run(chosen: argparse.Namespace) -> int:
    from unseen.sweeps.draws import load_sweep
    from unseen.sweeps.merged_rows import check_mergeable, merge_plan
    from unseen.sweeps.plan import plan_sweep
    from unseen.sweeps.tables import write_results
    from unseen.sweeps.train_plan import run_plan

    sweep = load_sweep(chosen.sweep, parse_overrides(chosen.overrides))
    resources = chosen_resources(chosen, sweep.retries)
    if chosen.dry_run and show_large(sweep, chosen.sweep, resources):
        return 0
    plan = plan_sweep(sweep, chosen.sweep)
    if chosen.merge:
        check_mergeable(plan)
    if chosen.dry_run:
        show_plan(plan, chosen.runs, resources)
        return 0
    outcomes = run_plan(plan, chosen.runs, resources, together=not chosen.one_by_one)
    merged = merge_plan(plan, chosen.runs, chosen.merge)
    return _show_results(plan, write_results(plan, chosen.runs, outcomes, merged))


def _show_results(plan: "Plan", results: "SweepResults") -> int:
    """The table of the sweep's own rule, where the others are, and what went wrong."""
    from unseen.reports.terminal import to_rich

    console, warnings = Console(), Console(stderr=True)
    for table in _printed(results, plan.sweep.rule):
        console.print(to_rich(table, console.width))
    rules = ", ".join(results.tables)
    for line in (
        f"Tables for the rules {rules}, and chosen.json: {results.home}",
        f"As a page: unseen report {results.home / plan.sweep.rule}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
    for line in _what_is_missing(plan, results):
        warnings.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if any(each.state != "stopped" for each in results.missing) else 0


def _printed(results: "SweepResults", rule: str) -> "list[Table]":
    """The tables of the one dataset; of several, their summary."""
    summary = results.summaries.get(rule)
    return results.tables[rule] if summary is None else [summary]


def _what_is_missing(plan: "Plan", results: "SweepResults") -> Iterator[str]:
    stopped = [each for each in results.missing if each.state == "stopped"]
    if stopped:
        yield f"{len(stopped)} runs were stopped early by successive halving."
    for each in results.missing:
        if each.state != "stopped":
            yield f"{each.state}: {plan.label(each.run)}: {each.error}\n  {each.folder.path}"
