"""Leave each domain out in turn: train on the others, test on it; every method and seed.

Prints the out-of-domain, in-domain and known-domain tables and saves them as CSV, Markdown and
LaTeX. Finished runs are skipped and unfinished ones resumed, so the same command goes on.

  unseen compare digits
  unseen compare pacs --methods aggregate,multihead,dmg --seeds 0,1,2 --backbone resnet18
  unseen compare folder data.root=my_images steps=500
"""

import argparse
from pathlib import Path

from rich.console import Console

from unseen.config import parse_seeds
from unseen.recipe_files import parse_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="a dataset with recipes: 'unseen list recipes'")
    parser.add_argument(
        "--methods",
        default="aggregate,multihead,dmg",
        help="the first is the reference; 'all' for every one",
    )
    parser.add_argument("--seeds", default="0", help="for example 0,1,2 or 0-4")
    parser.add_argument("--backbone", help="another network for all methods")
    parser.add_argument("--unseen", default="", help="hold out these domains only")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument(
        "--log", default="", help="send records to wandb, tensorboard, mlflow as well: any of them"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings for all runs")


def run(chosen: argparse.Namespace) -> None:
    from unseen.experiments.compare import compare
    from unseen.reports.formats import to_rich
    from unseen.training.devices import is_first_process

    quiet = not is_first_process()
    comparison = compare(
        chosen.dataset,
        methods=chosen.methods,
        seeds=parse_seeds(chosen.seeds),
        backbone=chosen.backbone,
        unseen=chosen.unseen,
        runs=chosen.runs,
        log=chosen.log,
        console=Console(stderr=True, quiet=quiet),
        **parse_overrides(chosen.overrides),
    )
    console = Console(quiet=quiet)
    for table in comparison.tables:
        console.print(to_rich(table, console.width))
    folder = comparison.files[0].parent
    console.print(f"Tables as CSV, Markdown and LaTeX: {folder}", highlight=False, soft_wrap=True)
