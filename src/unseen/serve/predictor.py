"""A classifier in use, whatever file it comes from: images in, probabilities out. No torch."""

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy.special import softmax

from unseen.data.decoding import ahead
from unseen.data.images import Window, open_image, read_bytes, to_rgb, to_square
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.forecast.profile import ModelOutputs, Profile, disagreement, image_statistics
from unseen.optional import training_packages
from unseen.reports.figures.grids import overlay
from unseen.results.folder import RunFolder, find_runs

ImageLike = str | Path | Image.Image | np.ndarray
Images = Iterable[ImageLike] | np.ndarray
BATCH = 128
"""Images that the model predicts at a time."""
_LEAST = 1e-30
"""Probabilities below have no logarithm of use."""
NOT_FINITE = (
    "the model's prediction is not a number: its weights are damaged, or its training diverged; "
    "train it again, or name another model"
)
_EXPECTED = (
    "expected a run folder, a folder made by save_pretrained, or a file made by "
    "'unseen export --to onnx'"
)


class Predictions(NamedTuple):
    """Probabilities `[images, classes]`, and opinions `[images, domains, classes]`: probabilities
    as if each training domain were the known one; None where a model has none."""

    probabilities: np.ndarray
    opinions: np.ndarray | None

    def at(self, temperature: float) -> "Predictions":
        """Returns them at this temperature instead of 1; 1 / T goes back from T."""
        if temperature == 1:
            return self

        def softened(probs: np.ndarray) -> np.ndarray:
            with np.errstate(divide="ignore"):  # a probability of zero stays one
                scores = np.log(probs.astype(np.float64)) / temperature
            return softmax(scores, axis=-1).astype(probs.dtype)

        opinions = None if self.opinions is None else softened(self.opinions)
        return Predictions(softened(self.probabilities), opinions)

    def finite(self) -> np.ndarray:
        """Returns for each image whether all its probabilities are numbers."""
        every = self.probabilities if self.opinions is None else self.opinions
        sums = self.probabilities.sum(axis=1) + every.reshape(len(every), -1).sum(axis=1)
        return np.isfinite(sums)

    def outputs(self) -> ModelOutputs:
        """Returns the outputs that forecasts and the drift watch use; call it on raw ones."""
        scores = np.log(np.maximum(self.probabilities, _LEAST))
        return ModelOutputs(scores, None if self.opinions is None else disagreement(self.opinions))


class Classified(NamedTuple):
    """The most likely class of an image."""

    name: str
    probability: float


class Prediction(NamedTuple):
    """The outcome for one image; `problem` says why there are no numbers."""

    image: ImageLike
    probabilities: np.ndarray | None = None
    opinions: np.ndarray | None = None
    problem: str | None = None
    statistics: np.ndarray | None = None
    """Those of its file, where they were asked for."""
    features: np.ndarray | None = None

    @property
    def disagreement(self) -> float | None:
        """The divergence of the opinions, 0 to 1."""
        return None if self.opinions is None else float(disagreement(self.opinions))


class Predictor(ABC):
    """A classifier with the names of its classes and of the domains it was trained on."""

    classes: list[str]
    domains: list[str]
    kind: tuple[str, str]
    """The names of its method and its backbone."""
    image_size: int
    has_opinions: bool
    """True where predictions depend on the domain, so that each training domain has its own."""
    has_heatmaps: bool = False
    """True where it can tell which places of an image its answer comes from."""
    profile: Profile | None = None
    """Its outputs for its validation images, for forecasts and drift."""
    window: Window | None = None
    """The values that became black and white in training images of more than 8 bits."""
    fitted_temperature: float | None = None
    """None where none could be fitted: without a mistake on validation images."""

    @property
    def temperature(self) -> float:
        """Class scores are divided by it, so that probabilities are calibrated."""
        return 1.0 if self.fitted_temperature is None else self.fitted_temperature

    @abstractmethod
    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None = None, raw: bool = False
    ) -> Predictions:
        """Predict uint8 `[images, height, width, 3]`, of a training domain where it is known.
        Calibrated, unless probabilities are to be `raw`."""

    def features(self, pixels: np.ndarray) -> np.ndarray | None:
        """The classifier's input `[images, at most 64]`, as in the profile, for uint8 `[images,
        size, size, 3]`; None where there is none to be had."""
        return None

    def heatmaps(self, pixels: np.ndarray) -> np.ndarray:
        """Returns where the class that the model gives each image comes from, `[images, maps, rows,
        columns]`, from 0 to 1; with opinions, also where that of each training domain does."""
        raise UnseenError(
            "heatmaps need gradients, which an exported file does not have; name the run folder, "
            "or one made by save_pretrained"
        )

    def predict(self, images: Images, domain: str | None = None, raw: bool = False) -> np.ndarray:
        """Returns class probabilities `[images, classes]`; name the domain where it is known.
        `raw` gives those that are not calibrated."""
        rows = [_good(each).probabilities for each in self.stream(images, domain, raw=raw)]
        return np.array(rows, dtype=np.float32).reshape(-1, len(self.classes))

    def classify(self, images: Images, domain: str | None = None) -> list[Classified]:
        """Returns the most likely class of each image by its name, with its probability."""
        rows = self.predict(images, domain)
        return [Classified(self.classes[row.argmax()], float(row.max())) for row in rows]

    def opinions(self, images: Images, raw: bool = False) -> np.ndarray:
        """Returns probabilities `[images, domains, classes]` as if each training domain were the
        known one."""
        if not self.has_opinions:
            raise UnseenError(
                "this model predicts the same for every domain, so it has no opinions; models "
                "trained with dmg, multihead or fusion have them"
            )
        rows = [_good(each).opinions for each in self.stream(images, raw=raw)]
        return np.array(rows, dtype=np.float32).reshape(-1, len(self.domains), len(self.classes))

    def disagreement(self, images: Images, raw: bool = False) -> np.ndarray:
        """Returns the divergence of the training domains' opinions, `[images]`: 0 to 1."""
        return disagreement(self.opinions(images, raw))

    def stream(
        self,
        images: Images,
        domain: str | None = None,
        batch: int = BATCH,
        raw: bool = False,
        measure: bool = False,
    ) -> Iterator[Prediction]:
        """Yields one prediction after the other, for any number of images; a bad one stops nothing.

        Opinions come along where the model has them and the domain is not known; statistics and
        features where they are to be measured. Mistakes in the call are found at once, not when the
        first prediction is asked for.
        """
        single = isinstance(images, str | Path | Image.Image)
        if single or (isinstance(images, np.ndarray) and images.ndim != 4):
            raise DataError("expected a list of images; put a single image into a list")
        if domain is not None and domain not in self.domains:
            raise SettingsError(unknown_name("training domain", domain, self.domains))
        number = None if domain is None else self.domains.index(domain)
        # threads work on the next batch while this one is used, and on no more
        cores = os.cpu_count() or 1
        read = ahead(lambda image: self._read(image, measure), images, cores, batch)
        batches = iter(lambda: list(islice(read, batch)), [])
        return (each for some in batches for each in self._predict_read(some, number, raw, measure))

    def _predict_read(
        self,
        read: Sequence[tuple[Prediction, np.ndarray | None]],
        domain: int | None,
        raw: bool,
        measure: bool,
    ) -> Iterator[Prediction]:
        """Yields the predictions of a batch; what could not be read has its problem already."""
        good = [pixels for _, pixels in read if pixels is not None]
        if not good:
            yield from (each for each, _ in read)
            return
        found = self.predict_pixels(np.stack(good), domain, raw)
        opinions = found.opinions if domain is None else None
        features = self.features(np.stack(good)) if measure else None
        rows = iter(enumerate(found.finite()))
        for each, pixels in read:
            if pixels is not None:
                row, is_finite = next(rows)
                if is_finite:
                    each = each._replace(
                        probabilities=found.probabilities[row],
                        opinions=None if opinions is None else opinions[row],
                        features=None if features is None else features[row],
                    )
                else:
                    name = each.image if isinstance(each.image, str | Path) else "an image"
                    each = each._replace(problem=f"{name}: {NOT_FINITE}")
            yield each

    def _read(self, image: ImageLike, measure: bool) -> tuple[Prediction, np.ndarray | None]:
        """Returns an image prepared exactly as training images are, or what is wrong with it."""
        size, window = self.image_size, self.window
        try:
            if isinstance(image, str | Path):
                found = read_pixels(Path(image), str(image), size, window, measure=measure)
                return Prediction(image, statistics=found[1]), found[0]
            if isinstance(image, Image.Image):
                return Prediction(image), to_square(to_rgb(image, window), size)
            kind = f"{image.dtype} {image.shape}"
            if image.dtype != np.uint8 or image.ndim < 2 or image.shape[2:] not in ((), (3,), (4,)):
                raise DataError(f"an array should be uint8 [height, width, 3], got {kind}")
            return Prediction(image), to_square(to_rgb(Image.fromarray(image)), size)
        except DataError as error:
            return Prediction(image, problem=str(error)), None


def read_pixels(
    source: Path | bytes,
    name: str,
    size: int,
    window: Window | None,
    formats: tuple[str, ...] | None = None,
    measure: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns an image file's pixels, prepared exactly as those of training images, and its
    statistics, if they are to be measured: these need the whole image, where a large JPEG is
    prepared from a smaller copy."""
    data = source if isinstance(source, bytes) else read_bytes(source, name)
    if not measure:
        return to_square(open_image(data, name, formats, window, size), size), None
    whole = image = open_image(data, name, formats, window)
    if data.startswith(b"\xff\xd8\xff") and min(whole.size) >= 4 * size:
        image = open_image(data, name, formats, window, size)
    return to_square(image, size), image_statistics(whole, len(data))


def _good(prediction: Prediction) -> Prediction:
    if prediction.problem is not None:
        raise DataError(prediction.problem)
    return prediction


def draw_heatmaps(model: Predictor, pixels: np.ndarray) -> bytes:
    """Return a PNG of an image, prepared as uint8 `[size, size, 3]`, and beside it where
    the model looked: for its answer, and with opinions for that of each training domain."""
    (maps,) = model.heatmaps(pixels[None])
    strip = np.concatenate([pixels, *(overlay(pixels, heat) for heat in maps)], axis=1)
    file = io.BytesIO()
    Image.fromarray(strip).save(file, "png")
    return file.getvalue()


def load(path: str | os.PathLike[str], device: str = "auto") -> Predictor:
    """Open a model to use it. A run folder gives the weights that its selection rule chose.

    Opening a file never runs code in it. `device` is `auto`, or a device as torch names it.
    """
    path = Path(path)
    problem = f"{path} is not a model; {_EXPECTED}"
    if path.is_dir():
        with training_packages():
            from unseen.serve.model import Model

        if RunFolder(path).settings.is_file():
            return Model.from_run(RunFolder(path), device)
        if (path / "config.json").is_file():
            return Model.from_folder(path, device)
        for run in islice(find_runs(path), 1):
            problem += f". It holds runs; name one of them, for example {run.path}"
    elif not path.exists():
        problem = f"there is no model {path}; {_EXPECTED}"
    elif path.suffix == ".onnx":
        from unseen.serve.onnx import OnnxModel

        return OnnxModel(path, device)
    elif path.suffix == ".pt2":
        problem = (
            f"{path} is a file of torch.export, which unseen writes but does not open: it may hold "
            "code. Name the run folder, the saved model or an .onnx file; programs with torch open "
            "a file they trust with torch.export.load(path).module()"
        )
    raise UnseenError(problem)
