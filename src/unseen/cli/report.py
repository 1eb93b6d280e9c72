"""The command `report`: a web page from a folder of runs."""

import argparse
from pathlib import Path

from unseen.cli.shared import add_output, say
from unseen.settings.experiment import METRICS


def add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUNS", type=Path, help="where runs are kept, or a folder of tables"
    )
    add_output(parser, "DIR", "the page there; left out: RUNS/report")
    parser.add_argument("--rule", help="selection rule to show first: source, last or oracle")
    parser.add_argument(
        "--metric",
        choices=tuple(METRICS),
        help="show this one, whatever chose the checkpoints; left out: that of each run",
    )
    parser.add_argument(
        "--figures", action="store_true", help="also write each figure as SVG, PDF and PNG"
    )


def run_report(chosen: argparse.Namespace) -> None:
    """Write one web page about a folder of runs: conclusion, tables, figures, how it was made.

    unseen report runs
    unseen report runs -o paper --rule last --figures
    unseen report runs --metric balanced             (every class counts the same)
    unseen report runs/tables/sweep-.../source       (a folder of tables: the runs it was made of)
    """
    from unseen.reports.page.write import write_report

    folder = chosen.output or chosen.runs / "report"
    say(write_report(chosen.runs, folder, chosen.rule, chosen.figures, chosen.metric))
