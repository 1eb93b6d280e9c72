"""The command `serve`: a model over HTTP."""

import argparse
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.cli.shared import add_model, loading, say, whole

if TYPE_CHECKING:
    from unseen.serve.predictor import Predictor
    from unseen.serve.service import Service


_NUMBERS: dict[str, tuple[float, str]] = {
    "--max-bytes": (20_000_000, "of the body of a request"),
    "--max-pixels": (25_000_000, "of one image"),
    "--max-images": (64, "in one request"),
    "--max-batch": (32, "largest batch of the model"),
    "--queue": (256, "images that wait at most; more get 503"),
    "--read-seconds": (30.0, "time for a client to send a request"),
    "--window": (500, "last images that are compared with validation images; 0: none"),
}


def add_serve(parser: argparse.ArgumentParser) -> None:
    add_model(parser, images=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 finds a free one")
    parser.add_argument(
        "--token", help="clients have to send it; safer in the variable UNSEEN_TOKEN"
    )
    _add_numbers(parser, _NUMBERS)
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="RUNS",
        help="a folder of runs that left each training domain out: better forecasts (needs torch)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep images and predictions there; by default none are kept",
    )
    _add_numbers(
        parser,
        {
            "--keep-images": (1000, "the newest ones that are kept"),
            "--keep-bytes": (1_000_000_000, "of all that is kept"),
        },
    )


def _add_numbers(parser: argparse.ArgumentParser, numbers: Mapping[str, tuple[float, str]]) -> None:
    for option, (default, about) in numbers.items():
        least = 0 if option == "--window" else 1
        kind = whole(least) if isinstance(default, int) else float
        parser.add_argument(option, type=kind, default=default, metavar="N", help=about)


def run_serve(chosen: argparse.Namespace) -> int:
    """Serve a model over HTTP: a page for people, and predictions for programs.

    MODEL is a run folder, a folder made by save_pretrained, or a file made by 'unseen export'. Only
    this machine can reach the service, unless --host says otherwise; then set a token, too.
    Requests are answered in batches. SIGTERM or Ctrl+C ends it after all accepted requests are
    answered.

      unseen serve runs/pacs-...
      unseen serve model.onnx --port 8080
      UNSEEN_TOKEN=... unseen serve model.onnx --host 0.0.0.0
    """
    from unseen.optional import require

    for package in ("starlette", "uvicorn", "python_multipart", "prometheus_client"):
        require(package, "serve")
    with loading():
        from unseen.serve.app import build_app
        from unseen.serve.predictor import load
        from unseen.serve.server import is_local, open_socket, run_server

        model = load(chosen.model, chosen.device)
    service = _service(model, chosen)
    listening = open_socket(chosen.host, chosen.port)
    token = chosen.token or os.environ.get("UNSEEN_TOKEN") or None
    tell = partial(say, console=Console(stderr=True))
    local = is_local(chosen.host)
    if not local and token is None:
        tell(f"Everybody who reaches {chosen.host} can use this service: set --token")
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    guard = build_app(service, token, local)
    code = run_server(guard, listening, lambda: tell(f"Serving {chosen.model} at {address}"))
    answered = service.answered
    tell(f"Ended; {answered} image{'s' if answered != 1 else ''} answered")
    return code


def _service(model: "Predictor", chosen: argparse.Namespace) -> "Service":
    from unseen.serve.drift import DriftWatch
    from unseen.serve.requests import Limits
    from unseen.serve.service import Keeper, Service

    limits = Limits(
        chosen.max_bytes,
        chosen.max_pixels,
        chosen.max_images,
        chosen.queue,
        chosen.max_batch,
        chosen.read_seconds,
    )
    keeper = None
    if chosen.keep is not None:
        keeper = Keeper(chosen.keep, chosen.keep_images, chosen.keep_bytes)
    references = []
    if chosen.reference is not None:
        from unseen.serve.references import read_references

        say = Console(stderr=True).print
        references = read_references(chosen.reference, model, say, chosen.device)
    name, card = chosen.model.resolve().name, _card(model, chosen.model)
    return Service(model, limits, name, card, keeper, DriftWatch(model, chosen.window, references))


def _card(model: "Predictor", path: Path) -> str | None:
    """Of a run or a saved model; beside an exported file."""
    beside = path.with_name(f"{path.name}.md")
    text = beside.read_text(encoding="utf-8") if beside.is_file() else None
    return getattr(model, "card", text)
