"""Models in ONNX files, run by onnxruntime; torch is not needed."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from unseen.errors import SettingsError, UnseenError
from unseen.forecast.profile import Profile
from unseen.optional import require
from unseen.serve.predictor import Answers, Metadata, Predictor, read_metadata


class OnnxModel(Predictor):
    """A file made by `unseen export --to onnx`."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        providers = _providers(runtime, device)
        try:
            self._session = runtime.InferenceSession(path.read_bytes(), options, providers)
        except Exception as error:  # onnxruntime has an exception for each of its status codes
            reason = str(error).strip().partition("\n")[0]
            raise UnseenError(
                f"{path} is damaged or not an ONNX file ({reason}); "
                "make it again: unseen export RUN --to onnx"
            ) from error
        self.about = metadata = read_metadata(path, _values(self._session))
        self.classes, self.domains = metadata.classes, metadata.domains
        self.image_size, self.has_opinions = metadata.image_size, metadata.opinions
        if metadata.profile:
            self.profile = Profile.from_text(metadata.profile, str(path))
        self.fitted_temperature = metadata.temperature

    def answer(
        self, pixels: np.ndarray, domain: int | None, opinions: bool, raw: bool = False
    ) -> Answers:
        given: dict[str, np.ndarray] = {"images": pixels}
        if self.has_opinions and domain is not None:
            given["domain"] = np.array(domain, dtype=np.int64)
        wanted = ["probabilities", "opinions"] if opinions else ["probabilities"]
        found = self._session.run(wanted, given)
        answers = Answers(found[0], found[1] if opinions else None)
        return answers.at(1 / self.temperature) if raw else answers


def _values(session: Any) -> dict[str, object]:
    """The file's metadata; values that are not JSON are another program's."""
    found: dict[str, object] = {}
    for key, text in session.get_modelmeta().custom_metadata_map.items():
        if key in Metadata._fields:
            with contextlib.suppress(json.JSONDecodeError):
                found[key] = json.loads(text)
    return found


def _providers(runtime: Any, device: str) -> list[str]:
    """`auto` and `cuda`: the GPU where this onnxruntime has one; the CPU does the rest."""
    available: list[str] = runtime.get_available_providers()
    kind, gpu = device.partition(":")[0], "CUDAExecutionProvider"
    if kind not in {"auto", "cpu", "cuda"} or (kind == "cuda" and gpu not in available):
        raise SettingsError(
            f"the device '{device}' cannot be used: this onnxruntime has "
            f"{', '.join(available)}; choose auto or cpu"
        )
    use_gpu = kind != "cpu" and gpu in available
    return [gpu, "CPUExecutionProvider"] if use_gpu else ["CPUExecutionProvider"]
