"""One file from a trained model: for onnxruntime or torch, on machines without unseen.

It holds preparation, class names and the averaged prediction over all domains, and may be told the
domain. Before it is kept, its answers are compared with the model's.

  unseen export runs/pacs-... --to onnx
  unseen export runs/pacs-... --to torch -o classifier.pt2
"""

import argparse
from pathlib import Path

from rich.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="a finished run, or a folder of save_pretrained"
    )
    parser.add_argument("--to", choices=["onnx", "torch"], required=True, help="the kind of file")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="otherwise RUN/model.onnx or .pt2"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest difference of a probability from the model's; beyond it nothing is written",
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.errors import UnseenError
    from unseen.serving.export.write import SUFFIXES, export
    from unseen.serving.load import load
    from unseen.serving.model import Model

    model = load(chosen.run, "cpu")
    if not isinstance(model, Model):
        raise UnseenError(f"{chosen.run} is exported already; name the run that it came from")
    path = chosen.output or chosen.run / f"model{SUFFIXES[chosen.to]}"
    with Console(stderr=True).status("tracing, writing, comparing"):
        written = export(model, chosen.to, path, chosen.tolerance)
    parity = written.parity
    console = Console()
    for line in (
        f"{written.path} ({written.path.stat().st_size / 1e6:.1f} MB), card: {written.card}",
        f"Largest difference of a probability from the model's: {parity.difference:.1e} "
        f"(allowed: {chosen.tolerance:g}; {parity.answers} answers on {parity.pictures})",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
