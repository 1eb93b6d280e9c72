"""Write a trained model as one file, for onnxruntime or torch on machines without unseen.

The file includes image preparation, class names and the prediction averaged over all domains; it
can also be told the domain. Its answers are compared with the model's before it is kept.

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
        "-o", "--output", type=Path, metavar="FILE", help="default: RUN/model.onnx or RUN/model.pt2"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest allowed difference from the model's probabilities (default: 1e-4)",
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.errors import UnseenError
    from unseen.serve.export import SUFFIXES, export
    from unseen.serve.model import Model
    from unseen.serve.predictor import load

    model = load(chosen.run, "cpu")
    if not isinstance(model, Model):
        raise UnseenError(f"{chosen.run} is already an exported file; name the run it came from")
    path = chosen.output or chosen.run / f"model{SUFFIXES[chosen.to]}"
    with Console(stderr=True).status("tracing, writing, comparing"):
        written = export(model, chosen.to, path, chosen.tolerance)
    console = Console()
    for line in (
        f"{written.path} ({written.path.stat().st_size / 1e6:.1f} MB), card: {written.card}",
        f"Largest difference from the model's probabilities: {written.difference:.1e} "
        f"(allowed: {chosen.tolerance:g}; {written.predictions} predictions on "
        f"{written.compared_on})",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
