"""Export of a model as one file: traced, written, opened again, compared, and only then kept."""

import contextlib
import copy
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from unseen.atomic import atomic_file, write_text
from unseen.data.augment import PixelScale, to_input
from unseen.data.dataset import open_dataset
from unseen.data.images import to_square
from unseen.errors import SettingsError, UnseenError
from unseen.methods.base import DomainAware, Method
from unseen.optional import require
from unseen.results.files import FORMAT
from unseen.serve.model import Model
from unseen.serve.onnx import NO_DIGEST, UNKNOWN, Metadata, OnnxModel
from unseen.serve.predictor import Predictions
from unseen.settings.experiment import identity

_PRECISION = 2.0**22
_LARGEST = 2**31 - 1
"""Images and pixels of a side; torch before 2.7 cannot trace sides that may be any number."""
TOLERANCE = 1e-4
_IMAGES = 6
Target = Literal["onnx", "torch"]
SUFFIXES: dict[Target, str] = {"onnx": ".onnx", "torch": ".pt2"}
_RUNS_IN = {"onnx": "onnxruntime, without unseen and torch", "torch": "torch, without unseen"}
Predict = Callable[[np.ndarray, int | None], Predictions]
"""`Predictor.predict_pixels`, of a model or of a file."""


def to_squares(images: Tensor, size: int) -> Tensor:
    """Resize uint8 `[images, height, width, 3]` to float32 `[images, 3, size, size]`, in whole
    numbers.

    The same as `unseen.data.images.to_square`: width first, then height.
    """
    pixels = images.permute(0, 3, 1, 2).to(torch.float64)
    for _ in range(2):
        old = torch.arange(pixels.shape[-1], dtype=torch.float64, device=pixels.device)
        sums = pixels @ _weights(old, size)
        pixels = ((sums + _PRECISION / 2) / _PRECISION).floor().clamp(0, 255).transpose(2, 3)
    return pixels.to(torch.float32)


def _weights(old: Tensor, size: int) -> Tensor:
    """`[old length, size]`: what each old pixel adds to each new one, in units of 2^-22."""
    length = old[-1] + 1
    scale = length / size
    reach = scale.clamp(min=1.0)  # larger images are averaged, smaller ones interpolated
    new = torch.arange(size, dtype=torch.float64, device=old.device)
    centre = (new + 0.5) * scale
    first = (centre - reach + 0.5).floor().clamp(min=0)
    end = torch.minimum((centre + reach + 0.5).floor(), length)
    place = old[:, None]
    tent = 1 - ((place - centre + 0.5) * (1 / reach)).abs()
    inside = (place >= first) & (place < end)
    weights = torch.where(inside, tent.clamp(min=0), 0.0)
    return (weights / weights.sum(dim=0) * _PRECISION + 0.5).floor()


class Graph(nn.Module):
    """`images` uint8 [n, height, width, 3] to calibrated `probabilities` [n, classes].

    With `domain`, the number of the training domain or -1, it gives `opinions`
    [n, domains, classes] as well.
    """

    def __init__(self, method: Method, temperature: float) -> None:
        super().__init__()
        self.method, self.temperature = method, temperature
        self.size = method.network.image_size
        self.scale = PixelScale(method.network.mean, method.network.std)

    def forward(self, images: Tensor, domain: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        inputs = to_input(to_squares(images, self.size), self.scale)
        if domain is None:
            return (self.method.predict(inputs) / self.temperature).softmax(dim=1)
        assert isinstance(self.method, DomainAware)
        scores, opinions = self.method.scores_and_opinions(inputs)
        known = opinions.index_select(0, domain.clamp(min=0).reshape(1)).squeeze(0)
        chosen = torch.where(domain < 0, scores, known)
        by_image = opinions.transpose(0, 1) / self.temperature
        return (chosen / self.temperature).softmax(dim=1), by_image.softmax(dim=2)


def trace(method: Method, temperature: float) -> ExportedProgram:
    """Trace the method as one graph, for any number of images of any size."""
    names = "images", "height", "width"
    sizes = {axis: Dim(name, max=_LARGEST) for axis, name in enumerate(names)}
    plain = copy.deepcopy(method).cpu().to(memory_format=torch.contiguous_format)
    inputs = (torch.zeros(2, 37, 41, 3, dtype=torch.uint8), torch.tensor(UNKNOWN))
    shapes, graph = (sizes, {}), Graph(plain, temperature).eval()
    if not isinstance(plain, DomainAware):
        inputs, shapes = inputs[:1], shapes[:1]
    try:
        with torch.no_grad():
            program = torch.export.export(graph, inputs, dynamic_shapes=shapes)
    except Exception as error:  # the tracer raises nearly anything
        reason = str(error).strip().partition("\n")[0]
        raise UnseenError(
            f"{type(method).__name__} cannot be exported: torch.export says '{reason}'. "
            "A network or method of your own has to be traceable: no Python branches on values, "
            "images.shape[0] in place of len(images)"
        ) from error
    for node in program.graph.nodes:  # source lines and paths of this machine
        node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    return program


class Exported(NamedTuple):
    """The file that was written, and how well it agrees with the model."""

    path: Path
    card: Path
    difference: float
    """The largest difference between two probabilities."""
    compared: str
    """What was compared, such as `96 predictions on made-up images`."""


def _compare(model: Model, predict: Predict) -> tuple[float, str]:
    """Compare a file's predictions with the model's: at the network's size and at others, one image
    at a time and several, for an unknown domain and for each known one."""
    images, kind = _images(model)
    size, batches = model.image_size, [np.array(image)[None] for image in images]
    for shape in ((size, size), (size * 3 // 4, size * 5 // 3), (size * 2, size // 2 + 1)):
        batches.append(np.stack([np.asarray(image.resize(shape)) for image in images]))
    domains = [None, *range(len(model.domains))] if model.has_opinions else [None]
    largest, number = 0.0, 0
    for batch in batches:
        squares = np.stack([to_square(Image.fromarray(pixels), size) for pixels in batch])
        for domain in domains:
            expected, found = model.predict_pixels(squares, domain), predict(batch, domain)
            for one, other in zip(expected, found, strict=True):
                if one is not None and other is not None:
                    # a difference that is not a number stays one
                    largest = float(np.maximum(largest, np.abs(one - other).max()))
            number += len(batch)
    return largest, f"{number} predictions on {kind}"


def _images(model: Model) -> tuple[list[Image.Image], str]:
    """Images of the dataset that the model was trained on, where it is available; else made-up soft
    shapes."""
    try:
        dataset = open_dataset(model.experiment.data)
        chosen = np.linspace(0, len(dataset.index()) - 1, _IMAGES).astype(int)
        images = [dataset.read(int(position)) for position in chosen]
        return images, f"images of {model.experiment.data.name}"
    except (UnseenError, OSError):
        random, images = np.random.default_rng(0), list[Image.Image]()
    for _ in range(_IMAGES):
        width, height = random.integers(model.image_size // 2 + 1, 2 * model.image_size, 2).tolist()
        shapes = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        images.append(shapes.resize((width, height), Image.Resampling.BICUBIC))
    return images, "made-up images"


def write_onnx(program: ExportedProgram, metadata: Metadata, path: Path) -> None:
    """One file. Names of classes and domains are in its metadata; `domain` has a default."""
    onnx = require("onnx", "onnx")
    require("onnxscript", "onnx")
    n_names = 2 if metadata.opinions else 1
    inputs, outputs = ["images", "domain"][:n_names], ["probabilities", "opinions"][:n_names]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    # the converter reports its progress on stdout, and warns about its own internals
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            converted = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise UnseenError(
                f"torch {torch.__version__} cannot write this model as ONNX; a newer one may: "
                "pip install 'unseen[onnx]'"
            ) from error
    assert converted is not None
    model = converted.model_proto
    if metadata.opinions:  # an input that has an initial value may be left out
        default = onnx.numpy_helper.from_array(np.array(UNKNOWN, dtype=np.int64), "domain")
        model.graph.initializer.append(default)
    about = metadata.model_copy(update={"digest": NO_DIGEST})
    values = {key: json.dumps(value) for key, value in about.model_dump().items()}
    onnx.helper.set_model_props(model, values)
    model.producer_name = "unseen"
    content = model.SerializeToString()
    digest = hashlib.sha256(content).hexdigest()
    path.write_bytes(content.replace(NO_DIGEST.encode(), digest.encode(), 1))
    onnx.checker.check_model(path, full_check=True)


def open_torch_file(path: Path, opinions: bool) -> Predict:
    """Open a file that this process has just written: others may hold code."""
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.export.load(file).module()

    @torch.no_grad()
    def predict(pixels: np.ndarray, domain: int | None) -> Predictions:
        given = (torch.as_tensor(pixels), torch.tensor(UNKNOWN if domain is None else domain))
        if not opinions:
            return Predictions(graph(given[0]).numpy(), None)
        probabilities, each = graph(*given)
        return Predictions(probabilities.numpy(), each.numpy())

    return predict


def export(model: Model, to: Target, path: Path, tolerance: float = TOLERANCE) -> Exported:
    """Write the model as one file, with its card beside it.

    Nothing is left behind if the file's probabilities differ from the model's by more than
    `tolerance`.
    """
    if path.suffix != SUFFIXES[to]:
        reason = "so that programs recognise the format"
        raise SettingsError(f"{path} should end in {SUFFIXES[to]}, {reason}")
    experiment = model.experiment
    names = "classes", "domains", "image_size", "window"
    about: dict[str, Any] = {name: getattr(model, name) for name in names}
    about |= {"opinions": model.has_opinions, "temperature": model.fitted_temperature}
    about |= {"method": experiment.method.name, "backbone": experiment.network.name}
    about |= {"dataset": experiment.data.name, "selection": experiment.selection}
    about |= {"format": FORMAT, "run": identity(experiment)}
    profile = "" if model.profile is None else model.profile.to_text()
    metadata = Metadata(profile=profile, **about)
    program = trace(model.method, model.temperature)
    with atomic_file(path) as temporary:
        if to == "onnx":
            write_onnx(program, metadata, temporary)
            predict = OnnxModel(temporary, "cpu").predict_pixels
        else:
            extra = {"unseen.json": metadata.model_dump_json()}
            with temporary.open("wb") as file:
                torch.export.save(program, file, extra_files=extra)
            predict = open_torch_file(temporary, model.has_opinions)
        difference, compared = _compare(model, predict)
        if not difference <= tolerance:
            raise UnseenError(
                f"{path} was not written: its probabilities differ from the model's by up to "
                f"{difference:.1e}, more than --tolerance {tolerance:g} ({compared} were compared)"
            )
    card = path.with_name(f"{path.name}.md")
    text = (
        f"## The file {path.name}\n\n"
        f"It runs in {_RUNS_IN[to]}. It takes images of any size and holds their preparation, the "
        "names of classes and domains, and the whole prediction. When it was made, its "
        f"probabilities differed from the model's by at most {difference:.1e} ({compared}).\n"
    )
    write_text(card, f"{model.card}\n{text}")
    return Exported(path, card, difference, compared)
