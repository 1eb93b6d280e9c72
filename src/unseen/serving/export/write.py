"""One file from a model: traced, written, opened again, compared, and only then kept."""

from pathlib import Path
from typing import Literal, NamedTuple

from unseen.atomic import atomic_file, write_text
from unseen.errors import SettingsError, UnseenError
from unseen.serving.export.graph import describe, trace
from unseen.serving.export.onnx import OnnxModel, write_onnx
from unseen.serving.export.parity import Parity, compare
from unseen.serving.export.torch import TorchFileModel, write_torch
from unseen.serving.model import Model

Target = Literal["onnx", "torch"]
TOLERANCE = 1e-4
SUFFIXES: dict[Target, str] = {"onnx": ".onnx", "torch": ".pt2"}
_WRITERS = {"onnx": write_onnx, "torch": write_torch}
_READERS = {"onnx": OnnxModel, "torch": TorchFileModel}


class Exported(NamedTuple):
    path: Path
    card: Path
    parity: Parity


def export(model: Model, to: Target, path: Path, tolerance: float = TOLERANCE) -> Exported:
    """Write the model as one file, with its card beside it.

    Nothing is left behind if the file's probabilities differ from the model's by more than
    `tolerance`.
    """
    if path.suffix != SUFFIXES[to]:
        raise SettingsError(
            f"{path} should end in {SUFFIXES[to]}, by which programs know what it is"
        )
    program = trace(model.method)
    with atomic_file(path) as temporary:
        _WRITERS[to](program, describe(model), temporary)
        parity = compare(model, _READERS[to](temporary, "cpu"))
        if not parity.difference <= tolerance:
            raise UnseenError(
                f"{path} was not written: its probabilities differ from the model's by up to "
                f"{parity.difference:.1e}, more than --tolerance {tolerance:g} "
                f"({parity.answers} answers on {parity.pictures} were compared)"
            )
    card = path.with_name(f"{path.name}.md")
    write_text(card, f"{model.card}\n{_about_the_file(path, to, parity)}")
    return Exported(path, card, parity)


def _about_the_file(path: Path, to: Target, parity: Parity) -> str:
    runs_in = "onnxruntime, without unseen and torch" if to == "onnx" else "torch, without unseen"
    return (
        f"## The file {path.name}\n\n"
        f"It runs in {runs_in}. It takes pictures of any size and holds their preparation, the "
        "names of classes and domains, and the whole prediction. When it was made, its "
        f"probabilities differed from the model's by at most {parity.difference:.1e} "
        f"({parity.answers} answers on {parity.pictures}).\n"
    )
