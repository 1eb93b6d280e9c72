"""What a model in use can do, whatever file it came from: probabilities, opinions, names."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from unseen.data.feed import BATCH
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.serving.disagreement import disagreement
from unseen.serving.images import ImageLike, check_several, read_ahead


class Answers(NamedTuple):
    """Probabilities `[images, classes]`, and `[images, domains, classes]` as if each training
    domain were the known one."""

    probabilities: np.ndarray
    opinions: np.ndarray | None


class Prediction(NamedTuple):
    """What became of one image; `problem` says why there are no numbers."""

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

    @abstractmethod
    def answer(self, pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        """For uint8 `[images, height, width, 3]`; opinions where they are asked for."""

    def predict(
        self, images: Iterable[ImageLike] | np.ndarray, domain: str | None = None
    ) -> np.ndarray:
        """Class probabilities `[images, classes]`; name the domain where it is known."""
        found = [each.probabilities for each in self._all(images, domain, opinions=False)]
        return _stacked(found, (len(self.classes),))

    def opinions(self, images: Iterable[ImageLike] | np.ndarray) -> np.ndarray:
        """Probabilities `[images, domains, classes]` as if each training domain were the known
        one."""
        if not self.has_opinions:
            raise UnseenError(
                "this model answers the same for every domain, so it has no opinions; models of "
                "the methods dmg, multihead and fusion have them"
            )
        found = [each.opinions for each in self._all(images, None, opinions=True)]
        return _stacked(found, (len(self.domains), len(self.classes)))

    def disagreement(self, images: Iterable[ImageLike] | np.ndarray) -> np.ndarray:
        """How far the training domains' opinions lie apart, `[images]`: 0 to 1."""
        return disagreement(self.opinions(images))

    def stream(
        self,
        images: Iterable[ImageLike] | np.ndarray,
        domain: str | None = None,
        batch: int = BATCH,
    ) -> Iterator[Prediction]:
        """One prediction after the other, for any number of images; a bad image stops nothing.

        Opinions come along where the model has them and the domain is not known.
        """
        check_several(images)
        opinions = self.has_opinions and domain is None
        return self._stream(images, self._known(domain), opinions, batch)

    def _all(
        self, images: Iterable[ImageLike] | np.ndarray, domain: str | None, opinions: bool
    ) -> Iterator[Prediction]:
        check_several(images)
        for prediction in self._stream(images, self._known(domain), opinions, BATCH):
            if prediction.problem is not None:
                raise DataError(prediction.problem)
            yield prediction

    def _stream(
        self,
        images: Iterable[ImageLike] | np.ndarray,
        domain: int | None,
        opinions: bool,
        batch: int,
    ) -> Iterator[Prediction]:
        for readings in read_ahead(images, self.image_size, batch):
            pixels = [each.pixels for each in readings if each.pixels is not None]
            rows = iter(())
            if pixels:
                answers = self.answer(np.stack(pixels), domain, opinions)
                each_opinion = answers.opinions
                if each_opinion is None:
                    each_opinion = [None] * len(pixels)
                rows = zip(answers.probabilities, each_opinion, strict=True)
            for image, good, problem in readings:
                probabilities, opinion = (None, None) if good is None else next(rows)
                yield Prediction(image, probabilities, opinion, problem)

    def _known(self, domain: str | None) -> int | None:
        if domain is None:
            return None
        if domain not in self.domains:
            raise SettingsError(unknown_name("training domain", domain, self.domains))
        return self.domains.index(domain)


def _stacked(rows: list[np.ndarray | None], shape: tuple[int, ...]) -> np.ndarray:
    given = [row for row in rows if row is not None]
    return np.stack(given) if given else np.zeros((0, *shape), dtype=np.float32)
