"""Models as files of torch.export: for programs with torch, but without unseen."""

import io
import json
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.export import ExportedProgram

from unseen.errors import UnseenError
from unseen.serving.devices import choose_device
from unseen.serving.export.archive_check import ABOUT, check_archive
from unseen.serving.export.metadata import UNKNOWN, About, read_about
from unseen.serving.predictor import Answers, Predictor


def write_torch(program: ExportedProgram, about: About, path: Path) -> None:
    """One file; names of classes and domains are in `extra/unseen.json`."""
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={ABOUT: json.dumps(about._asdict())})


class TorchFileModel(Predictor):
    """A file made by `unseen export --to torch`."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        self._device = choose_device(device)
        content = path.read_bytes()
        about = read_about(path, check_archive(path, content))
        self._graph = _open(path, content).to(self._device)
        self.classes, self.domains = about.classes, about.domains
        self.image_size, self.has_opinions = about.image_size, about.opinions

    @torch.no_grad()
    def answer(self, pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        images = torch.from_numpy(pixels).to(self._device)
        if not self.has_opinions:
            return Answers(self._graph(images).cpu().numpy(), None)
        chosen = torch.tensor(UNKNOWN if domain is None else domain, device=self._device)
        probabilities, each = self._graph(images, chosen)
        return Answers(probabilities.cpu().numpy(), each.cpu().numpy() if opinions else None)


def _open(path: Path, content: bytes) -> torch.nn.Module:
    """Only after `check_archive`: torch's own loader runs pickles that it finds in a file."""
    from torch.export.pt2_archive._package import load_pt2

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_pt2(io.BytesIO(content)).exported_programs["model"].module()
    except Exception as error:  # the loader raises nearly anything
        logging.getLogger(__name__).debug("torch cannot open %s", path, exc_info=True)
        reason = str(error).strip().partition("\n")[0]
        raise UnseenError(
            f"{path} cannot be opened by torch {torch.__version__} ({reason}); such files are tied "
            "to the version of torch that wrote them: export the run again"
        ) from error
