"""Models in ONNX files, run by onnxruntime; torch is not needed."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unseen.errors import SettingsError, UnseenError
from unseen.forecast.profile import Profile
from unseen.optional import require
from unseen.results.files import check_format
from unseen.serve.predictor import Predictions, Predictor

UNKNOWN = -1
"""The value of the input `domain` where the domain is not known."""
NO_DIGEST = "0" * 64
Names = Annotated[list[str], Field(min_length=1)]
_About = TypeVar("_About", bound=BaseModel)


class Metadata(BaseModel):
    """The metadata of an exported file: names of classes and domains in the order of the
    numbers, and facts about the model."""

    model_config = ConfigDict(strict=True)
    format: int
    classes: Names
    domains: Names
    image_size: int
    opinions: bool
    """True where the file has the input `domain` and the output `opinions`."""
    method: str
    backbone: str
    dataset: str
    selection: str
    run: str
    profile: str
    """The profile as `Profile.to_text` writes it, or nothing."""
    temperature: float | None = Field(gt=0, allow_inf_nan=False)
    """Class scores were divided by it before they became probabilities."""
    window: tuple[float, float] | None = Field(None, strict=False)
    """The values that became black and white in training images of more than 8 bits."""
    digest: str | None = None
    """The SHA-256 of the file with `NO_DIGEST` in this place."""


def validated(kind: type[_About], found: object, path: Path) -> _About:
    """Check what a file says about itself, since any file may carry the right extension."""
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UnseenError(
            f"{path} is damaged: {name}: {first['msg']}; save or export the run again"
        ) from error


class OnnxModel(Predictor):
    """A file made by `unseen export --to onnx`."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        runtime = require("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        # threads that wait for work leave the processor to those that decode images
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers, content = _providers(runtime, device), path.read_bytes()
        try:
            self._session = runtime.InferenceSession(content, options, providers)
            texts = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:  # onnxruntime has an exception for each of its status codes
            reason = str(error).strip().partition("\n")[0]
            raise UnseenError(
                f"{path} is damaged or not an ONNX file ({reason}); "
                "make it again: unseen export RUN --to onnx"
            ) from error
        found: dict[str, object] = {}
        for key, text in texts.items():
            with contextlib.suppress(ValueError, RecursionError):  # of another program
                found[key] = json.loads(text)
        if "format" not in found:
            raise UnseenError(
                f"{path} was not made by 'unseen export': it does not name its classes and domains"
            )
        check_format(found, path, "export a run of this version, or use the version that wrote it")
        about = validated(Metadata, found, path)
        if about.digest is not None:  # of the content before its digest took its place
            content = content.replace(about.digest.encode(), NO_DIGEST.encode(), 1)
            if hashlib.sha256(content).hexdigest() != about.digest:
                raise UnseenError(
                    f"{path} is damaged: it does not hold what was exported; export the run again, "
                    "or remove 'digest' from its metadata if it was changed on purpose"
                )
        self.classes, self.domains = about.classes, about.domains
        self.kind = about.method, about.backbone
        self.image_size, self.has_opinions = about.image_size, about.opinions
        self.window = about.window
        if about.profile:
            self.profile = Profile.from_text(about.profile, str(path))
        self.fitted_temperature = about.temperature

    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None = None, raw: bool = False
    ) -> Predictions:
        given: dict[str, np.ndarray] = {"images": pixels}
        if self.has_opinions and domain is not None:
            given["domain"] = np.array(domain, dtype=np.int64)
        probabilities, *opinions = self._session.run(None, given)
        found = Predictions(probabilities, opinions[0] if opinions else None)
        return found.at(1 / self.temperature) if raw else found


def _providers(runtime: Any, device: str) -> list[str]:
    """`auto` and `cuda`: the GPU where this onnxruntime has one; the CPU does the rest."""
    available: list[str] = runtime.get_available_providers()
    kind, gpu = device.partition(":")[0], "CUDAExecutionProvider"
    if kind not in {"auto", "cpu", "cuda"} or (kind == "cuda" and gpu not in available):
        raise SettingsError(
            f"the device '{device}' cannot be used: this onnxruntime has "
            f"{', '.join(available)}; choose auto or cpu"
        )
    return [*([gpu] if kind != "cpu" and gpu in available else []), "CPUExecutionProvider"]
