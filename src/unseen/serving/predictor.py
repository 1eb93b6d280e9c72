"""What every loaded model offers, whatever file it came from."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.forecast.disagreement import disagreement
from unseen.forecast.profile import Profile
from unseen.serving.images import ImageLike, Reading, check_several, read_ahead

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
