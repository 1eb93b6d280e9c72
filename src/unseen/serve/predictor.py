"""What an exported file says about itself."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from unseen.data.images import open_image, to_rgb, to_square
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.forecast.profile import Profile, disagreement
from unseen.results.files import check_format

ImageLike = str | Path | Image.Image | np.ndarray


class Reading(NamedTuple):
    """An image and its pixels `[size, size, 3]`, or why there are none."""

    image: ImageLike
    pixels: np.ndarray | None
    problem: str | None


def read_ahead(images: Iterable[ImageLike], size: int, batch: int) -> Iterator[list[Reading]]:
    """Batches in order. Threads decode the next batch while this one is used, and no more: memory
    does not grow with the number of images."""
    source = iter(images)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pending = [pool.submit(read_images, image, size) for image in islice(source, batch)]
        while pending:
            upcoming = [pool.submit(read_images, image, size) for image in islice(source, batch)]
            yield [future.result() for future in pending]
            pending = upcoming


def read_images(image: ImageLike, size: int) -> Reading:
    """One image, prepared exactly as training images are."""
    try:
        return Reading(image, to_square(_opened(image), size), None)
    except DataError as error:
        return Reading(image, None, str(error))


def _opened(image: ImageLike) -> Image.Image:
    if isinstance(image, str | Path):
        return open_image(Path(image), str(image))
    if isinstance(image, Image.Image):
        return to_rgb(image)
    channels = image.shape[2:]
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels not in ((), (3,), (4,)):
        raise DataError(
            f"an array should be uint8 [height, width, 3], got {image.dtype} {image.shape}"
        )
    return to_rgb(Image.fromarray(image))


def check_several(images: object) -> None:
    """Refuse a single image where a list of them is expected."""
    single = isinstance(images, str | Path | Image.Image)
    if single or (isinstance(images, np.ndarray) and images.ndim != 4):
        raise DataError("expected a list of images; put a single image into a list")


Images = Iterable[ImageLike] | np.ndarray
BATCH = 128
"""Images that are answered at a time."""


class Answers(NamedTuple):
    """Probabilities `[images, classes]`, and `[images, domains, classes]` as if each training
    domain were the known one."""

    probabilities: np.ndarray
    opinions: np.ndarray | None

    def at(self, temperature: float) -> "Answers":
        """From temperature 1 to this one; at 1 / T, back from T."""
        if temperature == 1:
            return self
        found = (None if each is None else _softened(each, temperature) for each in self)
        return Answers(*found)  # pyright: ignore[reportArgumentType]


class Prediction(NamedTuple):
    """The outcome for one image; `problem` says why there are no numbers."""

    image: ImageLike
    probabilities: np.ndarray | None
    opinions: np.ndarray | None
    problem: str | None

    @property
    def disagreement(self) -> float | None:
        return None if self.opinions is None else float(disagreement(self.opinions))


class Predictor(ABC):
    """A classifier with the names of its classes and of the domains it was trained on."""

    classes: list[str]
    domains: list[str]
    image_size: int
    has_opinions: bool
    """Whether the answer depends on the domain, so that each training domain has its own."""
    profile: Profile | None = None
    """What it made of its validation images, for forecasts; None in models of older versions."""
    fitted_temperature: float | None = None
    """None where the model was made by a version that fitted none."""

    @property
    def temperature(self) -> float:
        """Class scores are divided by it, so that probabilities are calibrated."""
        return 1.0 if self.fitted_temperature is None else self.fitted_temperature

    @abstractmethod
    def answer(
        self, pixels: np.ndarray, domain: int | None, opinions: bool, raw: bool = False
    ) -> Answers:
        """For uint8 `[images, height, width, 3]`; opinions where they are asked for. Calibrated,
        unless they are to be `raw`."""

    def features(self, pixels: np.ndarray) -> np.ndarray | None:
        """`[images, at most 64]`, for uint8 `[images, size, size, 3]`: the classifier's input, as
        in the profile; None where there is none to be had."""
        return None

    def predict(self, images: Images, domain: str | None = None, raw: bool = False) -> np.ndarray:
        """Class probabilities `[images, classes]`; name the domain where it is known. `raw` gives
        those that are not calibrated."""
        found = self._predictions(images, _Question(domain, False, raw))
        return _stacked([each.probabilities for each in _complete(found)], (len(self.classes),))

    def opinions(self, images: Images, raw: bool = False) -> np.ndarray:
        """Probabilities `[images, domains, classes]` as if each training domain were the known
        one."""
        if not self.has_opinions:
            raise UnseenError(
                "this model gives the same answer for every domain, so it has no opinions; models "
                "trained with dmg, multihead or fusion have them"
            )
        found = self._predictions(images, _Question(None, True, raw))
        shape = (len(self.domains), len(self.classes))
        return _stacked([each.opinions for each in _complete(found)], shape)

    def disagreement(self, images: Images, raw: bool = False) -> np.ndarray:
        """How far the training domains' opinions lie apart, `[images]`: 0 to 1."""
        return disagreement(self.opinions(images, raw))

    def stream(
        self, images: Images, domain: str | None = None, batch: int = BATCH, raw: bool = False
    ) -> Iterator[Prediction]:
        """One prediction after the other, for any number of images; a bad image stops nothing.

        Opinions come along where the model has them and the domain is not known.
        """
        opinions = self.has_opinions and domain is None
        return self._predictions(images, _Question(domain, opinions, raw), batch)

    def _predictions(
        self, images: Images, asked: "_Question", batch: int = BATCH
    ) -> Iterator[Prediction]:
        """Mistakes in the call are found at once, not when the first prediction is asked for."""
        check_several(images)
        domain = asked.domain
        if domain is not None and domain not in self.domains:
            raise SettingsError(unknown_name("training domain", domain, self.domains))
        batches = read_ahead(images, self.image_size, batch)
        return chain.from_iterable(self._answered(each, asked) for each in batches)

    def _answered(self, readings: list[Reading], asked: "_Question") -> Iterator[Prediction]:
        pixels = [each.pixels for each in readings if each.pixels is not None]
        rows: Iterator[tuple[np.ndarray, np.ndarray | None]] = iter(())
        if pixels:
            number = None if asked.domain is None else self.domains.index(asked.domain)
            answers = self.answer(np.stack(pixels), number, asked.opinions, asked.raw)
            each_opinion = repeat(None) if answers.opinions is None else answers.opinions
            rows = zip(answers.probabilities, each_opinion, strict=False)
        for image, good, problem in readings:
            probabilities, opinion = (None, None) if good is None else next(rows)
            yield Prediction(image, probabilities, opinion, problem)


class _Question(NamedTuple):
    """What is asked about each image."""

    domain: str | None
    """The training domain that it is known to come from."""
    opinions: bool
    raw: bool


def _softened(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """The probabilities of the same class scores divided by a temperature."""
    with np.errstate(divide="ignore"):  # a chance of zero stays one
        scores = np.log(probabilities.astype(np.float64)) / temperature
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(probabilities.dtype)


def _complete(predictions: Iterable[Prediction]) -> Iterator[Prediction]:
    for prediction in predictions:
        if prediction.problem is not None:
            raise DataError(prediction.problem)
        yield prediction


def _stacked(rows: list[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
    given = [row for row in rows if row is not None]
    return np.stack(given) if given else np.zeros((0, *shape), dtype=np.float32)


UNKNOWN = -1
"""The value of the input `domain` where the domain is not known."""


class Metadata(NamedTuple):
    """Names of classes and domains in the order of the numbers, and what the model is."""

    format: int
    classes: list[str]
    domains: list[str]
    image_size: int
    opinions: bool
    """Whether the file has the input `domain` and the output `opinions`."""
    method: str
    backbone: str
    dataset: str
    selection: str
    run: str
    profile: str = ""
    """What the model made of its validation images, as `Profile.to_text` writes it."""
    temperature: float | None = None
    """What class scores were divided by before they became probabilities; None in files of versions
    that fitted none."""


def read_metadata(path: Path, found: dict[str, Any]) -> Metadata:
    """Checked, since any file may carry the right extension."""
    if "format" not in found:
        raise UnseenError(
            f"{path} was not made by 'unseen export': it does not name its classes and domains"
        )
    check_format(found, path, "export a run of this version, or use the version that wrote it")
    if not set(Metadata._fields) - set(Metadata._field_defaults) <= found.keys():
        raise UnseenError(f"{path} is damaged: its metadata is not complete; export the run again")
    metadata = Metadata(**found)
    if not are_names(metadata.classes, metadata.domains):
        raise UnseenError(f"{path} is damaged: its classes or domains are not lists of names")
    if metadata.temperature is not None and not is_temperature(metadata.temperature):
        raise UnseenError(f"{path} is damaged: its temperature is not a number above 0")
    return metadata


def is_temperature(value: object) -> bool:
    """Whether this is a number that scores can be divided by."""
    return isinstance(value, float | int) and value is not True and 0 < value < math.inf


def are_names(*lists: object) -> bool:
    """Whether all of these are lists of names, and not empty."""
    return all(
        isinstance(each, list) and each and all(isinstance(name, str) for name in each)
        for each in lists
    )
