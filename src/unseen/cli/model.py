"""The commands that use one model: `evaluate`, `predict`, `forecast` and `export`."""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import Progress

from unseen.cli.shared import add_model, add_output, loading, next_step, say, say_json, whole
from unseen.errors import UnseenError

if TYPE_CHECKING:
    from unseen.reports.formats import Guess, PredictedColumns, PredictedImage
    from unseen.serve.predictor import ImageLike, Prediction, Predictor

_WIDEST_NAME = 60


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "--data",
        type=Path,
        help="other images: a folder domain/class/*, or a CSV or JSON-lines manifest",
    )


def run_evaluate(chosen: argparse.Namespace) -> None:
    """Evaluate a finished run again, on its own images or on others.

    unseen evaluate runs/pacs-...
    unseen evaluate runs/folder-... --data fourth_hospital    (a folder or a manifest)
    """
    with loading():
        from unseen.api import load_run
        from unseen.reports.formats import result_records
        from unseen.reports.terminal import show_views

    opened = load_run(chosen.run)
    views = opened.evaluate(chosen.data)
    where = chosen.data or opened.result.dataset
    rule = opened.result.selection
    if chosen.json:
        measured = list(result_records(views))
        say_json({"run": str(chosen.run), "data": str(where), "rule": rule, "measured": measured})
        return
    title = f"{opened.result.method} on {where}, selection: {rule}"
    show_views(views, title, opened.result.metric, Console())
    if chosen.data is None:
        same = views == opened.result.under(rule).views
        say(f"{'Same as' if same else 'Differs from'} the recorded result.")


def add_predict(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--domain", help="the training domain of all images, where it is known")
    parser.add_argument("--top", type=whole(1), default=3, metavar="N", help="classes to name")
    parser.add_argument("--raw", action="store_true", help="probabilities without calibration")
    parser.add_argument(
        "--format", choices=["table", "csv", "json"], default="table", help="form of the output"
    )
    parser.add_argument("--batch", type=whole(1), default=64, metavar="N", help="images at a time")
    add_output(parser, "FILE", "there; left out: on the screen")
    parser.add_argument(
        "--heatmaps",
        type=Path,
        metavar="DIR",
        help="write a heatmap of each image: where the model looked",
    )


def run_predict(chosen: argparse.Namespace) -> int:
    """Predict the classes of images, with probabilities, the opinion of each training domain, and
    their disagreement.

    Unreadable images are reported and left out; the exit code is then 1.

      unseen predict runs/pacs-... photos/ holiday/*.jpg
      unseen predict model.onnx photos/ --top 1 --format csv -o predictions.csv
      unseen predict runs/pacs-... drawings/ --domain cartoon
      unseen predict runs/pacs-... photos/ --heatmaps looked_at
    """
    from unseen.data.images import find_images
    from unseen.reports.formats import PREDICTIONS

    number, width = 0, 0
    for path in find_images(chosen.images):
        number, width = number + 1, max(width, len(str(path)))
    with loading():
        from unseen.serve.predictor import load

        model = load(chosen.model, chosen.device)
    predictions = model.stream(find_images(chosen.images), chosen.domain, chosen.batch, chosen.raw)
    columns = _columns(model, chosen, width)
    console = Console(stderr=True)
    write_heatmaps = _heatmaps(model, chosen.heatmaps, console)
    bad = 0
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)

    def rows() -> "Iterator[PredictedImage]":
        nonlocal bad
        for prediction in bar.track(predictions, total=number, description="images"):
            if prediction.problem is None:
                write_heatmaps(prediction.image)
                yield _row(model, prediction, columns.top)
            else:
                bad += 1
                say(prediction.problem, console)

    with _output(chosen.output) as file, bar:
        for text in PREDICTIONS[chosen.format](rows(), columns):
            file.write(text)
        file.flush()
    if bad:
        say(f"{bad} of {number} images were left out", console)
    return 1 if bad else 0


def _heatmaps(
    model: "Predictor", folder: Path | None, console: Console
) -> "Callable[[ImageLike], None]":
    """Return what writes where the model looked in an image; raises where that cannot be told."""
    if folder is None:
        return lambda image: None
    import numpy as np

    from unseen.atomic import atomic_file
    from unseen.results.folder import safe_name
    from unseen.serve.predictor import draw_heatmaps, read_pixels

    model.heatmaps(np.zeros((1, model.image_size, model.image_size, 3), np.uint8))
    parts = ["image", "answer", *(model.domains if model.has_opinions else ())]
    say(f"{folder}: {', '.join(parts)}, from left to right", console)
    numbers = count()

    def write(image: "ImageLike") -> None:
        name = f"{next(numbers):05d}_{safe_name(Path(str(image)).stem)}.png"
        pixels, _ = read_pixels(Path(str(image)), str(image), model.image_size, model.window)
        with atomic_file(folder / name) as file:
            file.write_bytes(draw_heatmaps(model, pixels))

    return write


def _columns(model: "Predictor", chosen: argparse.Namespace, width: int) -> "PredictedColumns":
    from unseen.reports.formats import PredictedColumns

    return PredictedColumns(
        min(chosen.top, len(model.classes)),
        model.domains if model.has_opinions and chosen.domain is None else (),
        min(width, _WIDEST_NAME),
        max(map(len, model.classes)),
    )


def _row(model: "Predictor", prediction: "Prediction", top: int) -> "PredictedImage":
    from unseen.reports.formats import PredictedImage

    def best(probabilities) -> "list[Guess]":
        order = (-probabilities).argsort(kind="stable")[:top]
        return [(model.classes[number], float(probabilities[number])) for number in order]

    opinions = {}
    if prediction.opinions is not None:
        opinions = dict(zip(model.domains, map(best, prediction.opinions), strict=True))
    # a file's name may hold bytes that are no text
    name = str(prediction.image).encode(errors="surrogateescape").decode(errors="replace")
    return PredictedImage(name, best(prediction.probabilities), opinions, prediction.disagreement)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """The screen, or a file that is there when it is complete."""
    from unseen.atomic import atomic_file

    if path is None:
        yield sys.stdout
        return
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file


def add_forecast(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="RUNS",
        help="runs that left out each training domain in turn: better forecasts (needs torch)",
    )
    add_output(parser, "PAGE.html", "a web page, too")


def run_forecast(chosen: argparse.Namespace) -> int:
    """Estimate the accuracy on images without labels, and say what is different about them and what
    to do.

    Runs of the same method and backbone that left out the model's training domains in turn
    (--reference) show how far estimates are off.

      unseen forecast runs/pacs-... fourth_hospital/ --reference comparison
      unseen forecast model.onnx fourth_hospital/ -o forecast.html
    """
    from unseen.data.images import find_images

    files = list(find_images(chosen.images))
    with loading():
        from unseen.forecast.page import print_forecast, write_page
        from unseen.serve.forecast import forecast_files
    aside = Console(stderr=True)
    with Progress(console=aside, transient=True, disable=not aside.is_terminal) as bar:
        task = bar.add_task("images", total=len(files))
        found = forecast_files(
            chosen.model,
            files,
            chosen.reference,
            chosen.device,
            on_status=lambda text: bar.update(task, description=text),
            on_image=lambda: bar.update(task, description="images", advance=1),
        )
    for problem in found.problems:
        say(problem, aside)
    if chosen.json:
        say_json(found.as_json())
    else:
        print_forecast(found, Console())
    if chosen.output is not None:
        write_page(found, chosen.output)
        say(f"Wrote {chosen.output}", aside)
    return 1 if found.problems else 0


def add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="a finished run, or a folder made by save_pretrained"
    )
    parser.add_argument("--to", choices=["onnx", "torch"], required=True, help="the kind of file")
    add_output(parser, "FILE", "there; left out: RUN/model.onnx or RUN/model.pt2")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest allowed difference from the model's probabilities",
    )


def run_export(chosen: argparse.Namespace) -> None:
    """Write a trained model as one file, for onnxruntime or torch on machines without unseen.

    The file includes image preparation and class names. Its predictions are compared with the
    model's before it is kept.

      unseen export runs/pacs-... --to onnx
      unseen export runs/pacs-... --to torch -o classifier.pt2
    """
    with loading():
        from unseen.serve.export import SUFFIXES, export
        from unseen.serve.model import Model
        from unseen.serve.predictor import load

        model = load(chosen.run, "cpu")
    if not isinstance(model, Model):
        raise UnseenError(f"{chosen.run} is already an exported file; name the run it came from")
    path = chosen.output or chosen.run / f"model{SUFFIXES[chosen.to]}"
    with Console(stderr=True).status("tracing, writing, comparing"):
        written = export(model, chosen.to, path, chosen.tolerance)
    say(f"{written.path} ({written.path.stat().st_size / 1e6:.1f} MB), card: {written.card}")
    say(
        f"Largest difference from the model's probabilities: {written.difference:.1e} (allowed: "
        f"{chosen.tolerance:g}; {written.predictions} predictions on {written.compared_on})"
    )
    if chosen.to == "onnx":
        file = shlex.quote(str(written.path))
        next_step(f"unseen predict {file} IMAGES", f"unseen serve {file}")
