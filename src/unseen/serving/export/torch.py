"""Writing files of torch.export, for programs with torch but without unseen.

They are not read back as models: torch's loader unpickles what it finds in such a file, and the
format changes with torch's version. A file is opened once, by the process that wrote it, to compare
its answers with the model's.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram

from unseen.serving.export.metadata import UNKNOWN, Metadata
from unseen.serving.export.parity import Answer
from unseen.serving.predictor import Answers


def write_torch(program: ExportedProgram, metadata: Metadata, path: Path) -> None:
    """One file; names of classes and domains are in `extra/unseen.json`."""
    with path.open("wb") as file:
        extra = {"unseen.json": json.dumps(metadata._asdict())}
        torch.export.save(program, file, extra_files=extra)


def answers_of_file(path: Path) -> Answer:
    """What a file that this process has just written answers."""
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.export.load(file).module()

    @torch.no_grad()
    def answer(pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        images = torch.as_tensor(pixels)
        if not opinions:
            return Answers(graph(images).numpy(), None)
        chosen = torch.tensor(UNKNOWN if domain is None else domain)
        probabilities, each = graph(images, chosen)
        return Answers(probabilities.numpy(), each.numpy())

    return answer
