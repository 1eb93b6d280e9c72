"""Classes of images: with probabilities, what each training domain would say, and how far these
opinions lie apart.

MODEL is a run folder, a folder made by save_pretrained, or a file made by 'unseen export'. Images
are files, folders (with all below them) or patterns. Unreadable ones are reported and left out;
the exit code is then 1.

  unseen predict runs/pacs-... photos/ holiday/*.jpg
  unseen predict model.onnx photos/ --top 1 --format csv -o answers.csv
  unseen predict runs/pacs-... drawings/ --domain cartoon
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import Progress

from unseen.errors import SettingsError

if TYPE_CHECKING:
    from unseen.reports.predictions import Columns, Guess, Row
    from unseen.serve.predictor import Prediction, Predictor

_WIDEST_NAME = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="a run or an exported file")
    parser.add_argument("images", metavar="IMAGES", nargs="+", help="files, folders or patterns")
    parser.add_argument("--domain", help="the training domain of all images, where it is known")
    parser.add_argument("--top", type=int, default=3, metavar="N", help="classes to name (3)")
    parser.add_argument("--raw", action="store_true", help="probabilities without calibration")
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="images at a time (64)")
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead")


def run(chosen: argparse.Namespace) -> int:
    from unseen.data.images import find_images
    from unseen.reports.predictions import FORMATS
    from unseen.serve.predictor import load

    for name in ("top", "batch"):
        if getattr(chosen, name) < 1:
            raise SettingsError(f"--{name} should be 1 or more, got {getattr(chosen, name)}")
    number, width = 0, 0
    for path in find_images(chosen.images):
        number, width = number + 1, max(width, len(str(path)))
    model = load(chosen.model, chosen.device)
    predictions = model.stream(find_images(chosen.images), chosen.domain, chosen.batch, chosen.raw)
    columns = _columns(model, chosen, width)
    console = Console(stderr=True)
    bad = 0
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)

    def rows() -> "Iterator[Row]":
        nonlocal bad
        for prediction in bar.track(predictions, total=number, description="images"):
            if prediction.problem is None:
                yield _row(model, prediction, columns.top)
            else:
                bad += 1
                console.print(prediction.problem, markup=False, highlight=False, soft_wrap=True)

    with _output(chosen.output) as file, bar:
        for text in FORMATS[chosen.format](rows(), columns):
            file.write(text)
        file.flush()
    if bad:
        console.print(f"{bad} of {number} images were left out", highlight=False)
    return 1 if bad else 0


def _columns(model: "Predictor", chosen: argparse.Namespace, width: int) -> "Columns":
    from unseen.reports.predictions import Columns

    return Columns(
        min(chosen.top, len(model.classes)),
        model.domains if model.has_opinions and chosen.domain is None else (),
        min(width, _WIDEST_NAME),
        max(map(len, model.classes)),
    )


def _row(model: "Predictor", prediction: "Prediction", top: int) -> "Row":
    from unseen.reports.predictions import Row

    def best(probabilities) -> "list[Guess]":
        order = (-probabilities).argsort(kind="stable")[:top]
        return [(model.classes[number], float(probabilities[number])) for number in order]

    opinions = {}
    if prediction.opinions is not None:
        opinions = dict(zip(model.domains, map(best, prediction.opinions), strict=True))
    # a file's name may hold bytes that are no text
    name = str(prediction.image).encode(errors="surrogateescape").decode(errors="replace")
    return Row(name, best(prediction.probabilities), opinions, prediction.disagreement)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """The screen, or a file that is there when it is complete."""
    from unseen.atomic import atomic_file

    if path is None:
        yield sys.stdout
        return
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
