"""Models as ONNX files: for onnxruntime, on machines without unseen and without torch."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from torch.export import ExportedProgram

from unseen.errors import SettingsError, UnseenError
from unseen.optional import require
from unseen.serving.export.metadata import UNKNOWN, About, read_about
from unseen.serving.predictor import Answers, Predictor


def write_onnx(program: ExportedProgram, about: About, path: Path) -> None:
    """One file. Names of classes and domains are in its metadata; `domain` has a default."""
    onnx = require("onnx", "onnx")
    require("onnxscript", "onnx")
    import torch

    outputs = ["probabilities", "opinions"] if about.opinions else ["probabilities"]
    with _quiet():
        converted = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=["images", "domain"][: len(outputs)],
            output_names=outputs,
        )
    assert converted is not None
    model = converted.model_proto
    if about.opinions:  # an input that has an initial value may be left out
        default = onnx.numpy_helper.from_array(np.array(UNKNOWN, dtype=np.int64), "domain")
        model.graph.initializer.append(default)
    values = {key: json.dumps(value) for key, value in about._asdict().items()}
    onnx.helper.set_model_props(model, values)
    model.producer_name = "unseen"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(path, full_check=True)


class OnnxModel(Predictor):
    """A file made by `unseen export --to onnx`, run by onnxruntime."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(
                path.read_bytes(), options, providers=_providers(runtime, device)
            )
        except UnseenError:
            raise
        except Exception as error:  # onnxruntime has an exception for each of its status codes
            reason = str(error).strip().partition("\n")[0]
            raise UnseenError(
                f"{path} is damaged or not an ONNX file ({reason}); "
                "make it again: unseen export RUN --to onnx"
            ) from error
        about = read_about(path, _metadata(self._session))
        self.classes, self.domains = about.classes, about.domains
        self.image_size, self.has_opinions = about.image_size, about.opinions

    def answer(self, pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        given: dict[str, np.ndarray] = {"images": pixels}
        if self.has_opinions and domain is not None:
            given["domain"] = np.array(domain, dtype=np.int64)
        wanted = ["probabilities", "opinions"] if opinions else ["probabilities"]
        found = self._session.run(wanted, given)
        return Answers(found[0], found[1] if opinions else None)


def _metadata(session) -> dict[str, object]:
    """Values that are no JSON are another program's."""
    found: dict[str, object] = {}
    for key, text in session.get_modelmeta().custom_metadata_map.items():
        with contextlib.suppress(json.JSONDecodeError):
            found[key] = json.loads(text)
    return {key: value for key, value in found.items() if key in About._fields}


def _providers(runtime, device: str) -> list[str]:
    """`auto` and `cuda`: the GPU where this onnxruntime has one; the CPU does the rest."""
    available = runtime.get_available_providers()
    names = {"cpu": [], "auto": ["CUDAExecutionProvider"], "cuda": ["CUDAExecutionProvider"]}
    kind = device.partition(":")[0]
    if kind not in names or (kind == "cuda" and "CUDAExecutionProvider" not in available):
        raise SettingsError(
            f"the device '{device}' cannot be used: this onnxruntime has "
            f"{', '.join(available)}; choose auto or cpu"
        )
    return [*(name for name in names[kind] if name in available), "CPUExecutionProvider"]


@contextmanager
def _quiet() -> Iterator[None]:
    """The converter tells of its progress on stdout, and warns about its own insides."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        yield
