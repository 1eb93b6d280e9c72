"""How many answers will be right on images that nobody has labelled, what is different about them,
and what to do.

MODEL is a run folder, a folder made by save_pretrained, or a file made by 'unseen export'. Images
are files, folders (with all below them) or patterns. --reference names a folder of runs of the same
method and backbone that left out the model's training domains in turn: they show how far estimates
are off.

  unseen forecast runs/pacs-... fourth_hospital/ --reference comparison
  unseen forecast model.onnx fourth_hospital/ -o forecast.html --json forecast.json
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="a run or an exported file")
    parser.add_argument("images", metavar="IMAGES", nargs="+", help="files, folders or patterns")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="RUNS",
        help="a folder of runs in which each training domain was left out in turn",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PAGE.html", help="write a web page, too"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")


def run(chosen: argparse.Namespace) -> int:
    from unseen.atomic import write_json
    from unseen.data.images import find_images
    from unseen.forecast.text import print_forecast
    from unseen.serve.forecast import forecast_files

    files = list(find_images(chosen.images))
    aside = Console(stderr=True)
    with Progress(console=aside, transient=True, disable=not aside.is_terminal) as bar:
        task = bar.add_task("images", total=len(files))
        found = forecast_files(
            chosen.model,
            files,
            chosen.reference,
            chosen.device,
            on_status=lambda text: bar.update(task, description=text),
            on_images=lambda number: bar.update(task, description="images", advance=number),
        )
    for problem in found.problems:
        aside.print(problem, markup=False, highlight=False, soft_wrap=True)
    print_forecast(found, Console())
    if chosen.json is not None:
        write_json(chosen.json, found.as_json())
    if chosen.output is not None:
        from unseen.forecast.page import write_page

        write_page(found, chosen.output)
        Console().print(str(chosen.output), markup=False, highlight=False, soft_wrap=True)
    return 1 if found.problems else 0
