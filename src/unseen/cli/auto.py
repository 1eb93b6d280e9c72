"""The command `auto`: from images to a chosen model within a given time."""

import argparse

from unseen.cli.shared import add_output, add_settings, loading, say, say_json
from unseen.settings.recipes import parse_overrides


def add_auto(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data", metavar="DATA", help="a folder domain/class/*, a manifest, or a dataset's name"
    )
    parser.add_argument("--minutes", type=float, default=20, help="the time it may take")
    parser.add_argument(
        "--for",
        dest="images",
        action="append",
        default=[],
        metavar="IMAGES",
        help="images of a new place without labels (may be given again): forecast the accuracy "
        "there",
    )
    add_output(parser, "DIR", "runs and the result there; left out: auto-DATA")
    parser.add_argument(
        "--unseen",
        default="",
        metavar="DOMAIN",
        help="keep these domains out of everything and measure the model on them at the end",
    )
    parser.add_argument("--seeds", default="0", help="for example 0,1,2 or 0-4")
    parser.add_argument(
        "--workers", type=int, help="runs at the same time; left out: as many as the cores allow"
    )
    add_settings(parser, "settings for all runs")


def run_auto(chosen: argparse.Namespace) -> None:
    """Find the best model that this machine can train in the given time, and say what to expect of
    it in a new domain.

    Candidates are compared by leaving each domain out in turn; the simplest that is not worse by
    more than noise is trained on all domains. What is expected was measured on domains that had no
    part in the choice. The same command continues where it stopped.

      unseen auto three_hospitals
      unseen auto three_hospitals --minutes 60 --for fourth_hospital -o best
      unseen auto pacs --unseen sketch data.root=PACS
    """
    with loading():
        from unseen.automatic.answer import PAGE
        from unseen.automatic.run import auto

    answer = auto(
        chosen.data,
        chosen.minutes,
        images=chosen.images,
        output=chosen.output,
        unseen=chosen.unseen,
        seeds=chosen.seeds,
        workers=chosen.workers,
        **parse_overrides(chosen.overrides),
    )
    if chosen.json:
        say_json(answer.as_json())
        return
    for line in answer.lines():
        say(line)
    for about, command in {"as a page": str(answer.home / PAGE), **answer.commands}.items():
        say(f"  {about}: {command}")
