"""The commands that use one model: `evaluate`, `predict`, `forecast`, `export` and `serve`."""

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from unseen.cli import shared
from unseen.cli.shared import Add, next_step, say, say_json
from unseen.errors import UnseenError

if TYPE_CHECKING:
    from unseen.reports.formats import Guess, PredictedImage
    from unseen.serve.predictor import ImageLike, Prediction, Predictor

_WIDEST_NAME = 60


def add_evaluate(add: Add) -> None:
    add("run", "the folder of a finished run", metavar="RUN", type=Path)
    others = "other images: a folder domain/class/*, or a CSV or JSON-lines manifest"
    add("--data", others, type=Path)


def run_evaluate(chosen: argparse.Namespace) -> None:
    """Evaluate a finished run again, on its own images or on others.

    unseen evaluate runs/pacs-...
    unseen evaluate runs/folder-... --data fourth_hospital    (a folder or a manifest)
    """
    with shared.loading():
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


def add_predict(add: Add) -> None:
    shared.add_model(add)
    add("--domain", "the training domain of all images, where it is known", metavar="DOMAIN")
    add("--top", "classes to name", type=shared.at_least(1), default=3, metavar="N")
    add("--raw", "probabilities without calibration")
    add("--format", "form of the output", choices=["table", "csv", "json"], default="table")
    add("--batch", "images at a time", type=shared.at_least(1), default=64, metavar="N")
    add("-o --output", "write there; left out: on the screen", type=Path, metavar="FILE")
    looked = "write a heatmap of each image: where the model looked"
    add("--heatmaps", looked, type=Path, metavar="DIR")


def run_predict(chosen: argparse.Namespace) -> int:
    """Predict the classes of images, with probabilities, the opinion of each training domain, and
    their disagreement.

    Unreadable images are reported and left out; the exit code is then 1.

      unseen predict runs/pacs-... photos/ holiday/*.jpg
      unseen predict model.onnx photos/ --top 1 --format csv -o predictions.csv
      unseen predict runs/pacs-... drawings/ --domain cartoon
      unseen predict runs/pacs-... photos/ --heatmaps looked_at
    """
    from unseen.atomic import atomic_file
    from unseen.data.images import find_images
    from unseen.reports.formats import PREDICTIONS, PredictedColumns

    widths = [len(str(path)) for path in find_images(chosen.images)]
    with shared.loading():
        from unseen.serve.predictor import load

        model = load(chosen.model, chosen.device)
    predictions = model.stream(find_images(chosen.images), chosen.domain, chosen.batch, chosen.raw)
    opinions = model.domains if model.has_opinions and chosen.domain is None else ()
    top, width = min(chosen.top, len(model.classes)), min(max(widths, default=0), _WIDEST_NAME)
    columns = PredictedColumns(top, opinions, width, max(map(len, model.classes)))
    console, bad = Console(stderr=True), 0
    write_heatmaps = _heatmaps(model, chosen.heatmaps, console)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)

    def rows() -> "Iterator[PredictedImage]":
        nonlocal bad
        for prediction in bar.track(predictions, total=len(widths), description="images"):
            if prediction.problem is None:
                write_heatmaps(prediction.image)
                yield _row(model, prediction, top)
            else:
                bad += 1
                say(prediction.problem, console)

    with contextlib.ExitStack() as stack:
        file = sys.stdout
        if chosen.output is not None:  # it is there when it is complete
            part = stack.enter_context(atomic_file(chosen.output))
            file = stack.enter_context(part.open("w", encoding="utf-8"))
        stack.enter_context(bar)
        for text in PREDICTIONS[chosen.format](rows(), columns):
            file.write(text)
        file.flush()
    if bad:
        say(f"{bad} of {len(widths)} images were left out", console)
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


def add_forecast(add: Add) -> None:
    shared.add_model(add)
    add("--reference", shared.RUNS_OF_DOMAINS, type=Path, metavar="RUNS")
    add("-o --output", "write a web page, too", type=Path, metavar="PAGE.html")


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
    with shared.loading():
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


def add_export(add: Add) -> None:
    about = "a finished run, or a folder made by save_pretrained"
    add("run", about, metavar="RUN", type=Path)
    add("--to", "the kind of file", choices=["onnx", "torch"], required=True)
    where = "write there; left out: RUN/model.onnx or RUN/model.pt2"
    add("-o --output", where, type=Path, metavar="FILE")
    largest = "largest allowed difference from the model's probabilities"
    add("--tolerance", largest, type=float, default=1e-4)


def run_export(chosen: argparse.Namespace) -> None:
    """Write a trained model as one file, for onnxruntime or torch on machines without unseen.

    The file includes image preparation and class names. Its predictions are compared with the
    model's before it is kept.

      unseen export runs/pacs-... --to onnx
      unseen export runs/pacs-... --to torch -o classifier.pt2
    """
    with shared.loading():
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
        f"{chosen.tolerance:g}; {written.compared})"
    )
    if chosen.to == "onnx":
        file = shlex.quote(str(written.path))
        next_step(f"unseen predict {file} IMAGES", f"unseen serve {file}")


def add_serve(add: Add) -> None:
    from unseen.serve.limits import Limits

    shared.add_model(add, images=False)
    add("--host", "address to listen on", default="127.0.0.1")
    add("--port", "0 finds a free one", type=int, default=8000)
    secret = "secret that requests must send; better given as the variable UNSEEN_TOKEN"
    add("--token", secret, metavar="TOKEN")
    add("--reference", shared.RUNS_OF_DOMAINS, type=Path, metavar="RUNS")
    add("--keep", "keep images and predictions there", type=Path, metavar="DIR")
    for each in fields(Limits):
        option, about = f"--{each.name.replace('_', '-')}", each.metadata["help"]
        add(option, about, type=type(each.default), default=each.default, metavar="N")


def run_serve(chosen: argparse.Namespace) -> int:
    """Serve a model over HTTP: a page for people, and predictions for programs.

    Only this machine can reach the service, unless --host says otherwise; then set a token, too.
    SIGTERM or Ctrl+C ends it after all accepted requests are answered.

      unseen serve runs/pacs-...
      unseen serve model.onnx --port 8080
      UNSEEN_TOKEN=... unseen serve model.onnx --host 0.0.0.0
    """
    from unseen.optional import require

    for package in ("starlette", "uvicorn", "python_multipart", "prometheus_client"):
        require(package, "serve")
    with shared.loading():
        from unseen.serve.drift import DriftWatch
        from unseen.serve.http import Guard, is_local, open_socket, run_server
        from unseen.serve.limits import Limits
        from unseen.serve.predictor import load
        from unseen.serve.service import Keeper, Service

        model = load(chosen.model, chosen.device)
    aside = Console(stderr=True)
    limits = Limits(**{each.name: getattr(chosen, each.name) for each in fields(Limits)})
    keeper, references = None if chosen.keep is None else Keeper(chosen.keep, limits), []
    if chosen.reference is not None:  # runs need torch; exported files are served without it
        from unseen.serve.evaluate import read_references

        references = read_references(chosen.reference, model, aside.print, chosen.device)
    beside = chosen.model.with_name(f"{chosen.model.name}.md")  # the card of an exported file
    text = beside.read_text(encoding="utf-8") if beside.is_file() else None
    name, card = chosen.model.resolve().name, getattr(model, "card", text)
    watch = DriftWatch(model, limits.window, references)
    service = Service(model, limits, name, card, keeper, watch)
    listening = open_socket(chosen.host, chosen.port)
    token = chosen.token or os.environ.get("UNSEEN_TOKEN") or None
    local = is_local(listening)
    if not local and token is None:
        say(f"Everybody who reaches {chosen.host} can use this service: set --token", aside)
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    started = partial(say, f"Serving {chosen.model} at {address}", aside)
    code = run_server(Guard(service, token, local), listening, started)
    answered = service.answered
    say(f"Ended; {answered} image{'s' if answered != 1 else ''} answered", aside)
    return code
