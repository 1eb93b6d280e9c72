"""Evaluate a finished run again, on its own images or on others.

unseen evaluate runs/pacs-...
unseen evaluate runs/folder-... --data fourth_hospital      (a folder domain/class/* or a manifest)
"""

import argparse
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "--data",
        type=Path,
        help="other images: a folder domain/class/*, or a CSV or JSON-lines manifest",
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.api import load_run
    from unseen.reports.terminal import views_table

    opened = load_run(chosen.run)
    views = opened.evaluate(chosen.data)
    where = chosen.data or opened.result.dataset
    rule = opened.result.selection
    console = Console()
    title = f"{opened.result.method} on {where}, selection: {rule}"
    console.print(views_table(views, title, opened.result.metric, console.width))
    if chosen.data is None:
        same = views == opened.result.under(rule).views
        console.print(
            "Same as the recorded result." if same else "Differs from the recorded result.",
            highlight=False,
        )
