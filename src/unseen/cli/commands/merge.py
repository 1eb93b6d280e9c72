"""Average the weights of finished runs into one model of the same size and speed.

The runs share images, training domains, backbone, pretrained start and method; others are refused
with the difference. Weights are those that each run's selection rule chose; labels of the unseen
domain are never looked at. The result is a run folder like any other: predict, evaluate, export.

  unseen merge runs/pacs-efficientnet_lite0-dmg-sketch-* -o models/sketch
  unseen merge sweep_of_one_domain --choose greedy -o models/sketch
"""

import argparse
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "merged",
        metavar="RUNS",
        nargs="+",
        type=Path,
        help="run folders, or folders that hold runs",
    )
    parser.add_argument(
        "--choose",
        choices=("all", "greedy"),
        default="all",
        help="greedy: the best on source validation first, each next one unless the average gets "
        "worse there",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="MODEL", help="the new run folder"
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.api import merge
    from unseen.reports.terminal import run_table

    finished = merge(chosen.merged, chosen.output, choose=chosen.choose)
    console = Console()
    console.print(run_table(finished.result, console.width))
    assert finished.result.merged is not None
    console.print(finished.result.merged.description, highlight=False, soft_wrap=True)
