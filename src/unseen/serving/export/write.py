"""Exports a model as one file: traced, written, opened again, compared, and only then kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from torch.export import ExportedProgram

from unseen.atomic import atomic_file, write_text
from unseen.errors import SettingsError, UnseenError
from unseen.serving.export.graph import describe, trace
from unseen.serving.export.metadata import Metadata
from unseen.serving.export.onnx import write_onnx
from unseen.serving.export.parity import Answer, Parity, compare
from unseen.serving.export.torch import answers_of_file, write_torch
from unseen.serving.model import Model
from unseen.serving.onnx_model import OnnxModel

Target = Literal["onnx", "torch"]
TOLERANCE = 1e-4


class FileFormat(NamedTuple):
    suffix: str
    write: Callable[[ExportedProgram, Metadata, Path], None]
    open: Callable[[Path], Answer]
    runs_in: str


def _answers_of_onnx_file(path: Path) -> Answer:
    return OnnxModel(path, "cpu").answer


FORMATS: dict[Target, FileFormat] = {
    "onnx": FileFormat(
        ".onnx",
        write_onnx,
        _answers_of_onnx_file,
        "onnxruntime, without unseen and torch",
    ),
    "torch": FileFormat(".pt2", write_torch, answers_of_file, "torch, without unseen"),
}


class Exported(NamedTuple):
    path: Path
    card: Path
    parity: Parity


def export(model: Model, to: Target, path: Path, tolerance: float = TOLERANCE) -> Exported:
    """Write the model as one file, with its card beside it.

    Nothing is left behind if the file's probabilities differ from the model's by more than
    `tolerance`.
    """
    file_format = FORMATS[to]
    if path.suffix != file_format.suffix:
        raise SettingsError(
            f"{path} should end in {file_format.suffix}, so that programs recognise the format"
        )
    program = trace(model.method, model.temperature)
    with atomic_file(path) as temporary:
        file_format.write(program, describe(model), temporary)
        parity = compare(model, file_format.open(temporary))
        if not parity.difference <= tolerance:
            raise UnseenError(
                f"{path} was not written: its probabilities differ from the model's by up to "
                f"{parity.difference:.1e}, more than --tolerance {tolerance:g} "
                f"({parity.answers} answers on {parity.pictures} were compared)"
            )
    card = path.with_name(f"{path.name}.md")
    write_text(card, f"{model.card}\n{_about_the_file(path, file_format, parity)}")
    return Exported(path, card, parity)


def _about_the_file(path: Path, file_format: FileFormat, parity: Parity) -> str:
    return (
        f"## The file {path.name}\n\n"
        f"It runs in {file_format.runs_in}. It takes pictures of any size and holds their "
        "preparation, the names of classes and domains, and the whole prediction. When it was "
        f"made, its probabilities differed from the model's by at most {parity.difference:.1e} "
        f"({parity.answers} answers on {parity.pictures}).\n"
    )
