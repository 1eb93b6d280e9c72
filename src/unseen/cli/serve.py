"""The command `serve`: a model over HTTP."""

import argparse
import os
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from unseen.cli.shared import add_model, loading, say
from unseen.serve.limits import Limits

if TYPE_CHECKING:
    from unseen.serve.predictor import Predictor
    from unseen.serve.service import Service


def add_serve(parser: argparse.ArgumentParser) -> None:
    add_model(parser, images=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="0 finds a free one")
    parser.add_argument(
        "--token", help="secret that requests must send; better given as the variable UNSEEN_TOKEN"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="RUNS",
        help="runs that left out each training domain in turn: better forecasts (needs torch)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep images and predictions there"
    )
    for each in fields(Limits):
        about, kind = each.metadata["help"], type(each.default)
        option = f"--{each.name.replace('_', '-')}"
        parser.add_argument(option, type=kind, default=each.default, metavar="N", help=about)


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
    with loading():
        from unseen.serve.http import Guard, is_local, open_socket, run_server
        from unseen.serve.predictor import load

        model = load(chosen.model, chosen.device)
    service = _service(model, chosen)
    listening = open_socket(chosen.host, chosen.port)
    token = chosen.token or os.environ.get("UNSEEN_TOKEN") or None
    tell = partial(say, console=Console(stderr=True))
    local = is_local(listening)
    if not local and token is None:
        tell(f"Everybody who reaches {chosen.host} can use this service: set --token")
    host = f"[{chosen.host}]" if ":" in chosen.host else chosen.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    code = run_server(
        Guard(service, token, local),
        listening,
        lambda: tell(f"Serving {chosen.model} at {address}"),
    )
    answered = service.answered
    tell(f"Ended; {answered} image{'s' if answered != 1 else ''} answered")
    return code


def _service(model: "Predictor", chosen: argparse.Namespace) -> "Service":
    from unseen.serve.drift import DriftWatch
    from unseen.serve.service import Keeper, Service

    limits = Limits(**{each.name: getattr(chosen, each.name) for each in fields(Limits)})
    keeper = None if chosen.keep is None else Keeper(chosen.keep, limits)
    references = []
    if chosen.reference is not None:
        from unseen.serve.evaluate import read_references

        say = Console(stderr=True).print
        references = read_references(chosen.reference, model, say, chosen.device)
    name, card = chosen.model.resolve().name, _card(model, chosen.model)
    return Service(model, limits, name, card, keeper, DriftWatch(model, limits.window, references))


def _card(model: "Predictor", path: Path) -> str | None:
    """Of a run or a saved model; beside an exported file."""
    beside = path.with_name(f"{path.name}.md")
    text = beside.read_text(encoding="utf-8") if beside.is_file() else None
    return getattr(model, "card", text)
