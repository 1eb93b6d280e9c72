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

    @abstractmethod
    def answer(self, pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        """For uint8 `[images, height, width, 3]`; opinions where they are asked for."""

    def features(self, pixels: np.ndarray) -> np.ndarray | None:
        """`[images, at most 64]`, for uint8 `[images, size, size, 3]`: the classifier's input, as
        in the profile; None where there is none to be had."""
        return None

    def predict(self, images: Images, domain: str | None = None) -> np.ndarray:
        """Class probabilities `[images, classes]`; name the domain where it is known."""
        found = self._predictions(images, domain, opinions=False)
        return _stacked([each.probabilities for each in _complete(found)], (len(self.classes),))

    def opinions(self, images: Images) -> np.ndarray:
        """Probabilities `[images, domains, classes]` as if each training domain were the known
        one."""
        if not self.has_opinions:
            raise UnseenError(
                "this model gives the same answer for every domain, so it has no opinions; models "
                "trained with dmg, multihead or fusion have them"
            )
        found = self._predictions(images, None, opinions=True)
        shape = (len(self.domains), len(self.classes))
        return _stacked([each.opinions for each in _complete(found)], shape)

    def disagreement(self, images: Images) -> np.ndarray:
        """How far the training domains' opinions lie apart, `[images]`: 0 to 1."""
        return disagreement(self.opinions(images))

    def stream(
        self, images: Images, domain: str | None = None, batch: int = BATCH
    ) -> Iterator[Prediction]:
        """One prediction after the other, for any number of images; a bad image stops nothing.

        Opinions come along where the model has them and the domain is not known.
        """
        return self._predictions(images, domain, self.has_opinions and domain is None, batch)

    def _predictions(
        self, images: Images, domain: str | None, opinions: bool, batch: int = BATCH
    ) -> Iterator[Prediction]:
        """Mistakes in the call are found at once, not when the first prediction is asked for."""
        check_several(images)
        if domain is not None and domain not in self.domains:
            raise SettingsError(unknown_name("training domain", domain, self.domains))
        number = None if domain is None else self.domains.index(domain)
        batches = read_ahead(images, self.image_size, batch)
        return chain.from_iterable(self._answered(each, number, opinions) for each in batches)

    def _answered(
        self, readings: list[Reading], domain: int | None, opinions: bool
    ) -> Iterator[Prediction]:
        pixels = [each.pixels for each in readings if each.pixels is not None]
        rows: Iterator[tuple[np.ndarray, np.ndarray | None]] = iter(())
        if pixels:
            answers = self.answer(np.stack(pixels), domain, opinions)
            each_opinion = repeat(None) if answers.opinions is None else answers.opinions
            rows = zip(answers.probabilities, each_opinion, strict=False)
        for image, good, problem in readings:
            probabilities, opinion = (None, None) if good is None else next(rows)
            yield Prediction(image, probabilities, opinion, problem)


def _complete(predictions: Iterable[Prediction]) -> Iterator[Prediction]:
    for prediction in predictions:
        if prediction.problem is not None:
            raise DataError(prediction.problem)
        yield prediction


def _stacked(rows: list[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
    given = [row for row in rows if row is not None]
    return np.stack(given) if given else np.zeros((0, *shape), dtype=np.float32)
