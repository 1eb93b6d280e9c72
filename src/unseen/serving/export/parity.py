"""Compares the answers of an exported file with the model's, on images."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image

from unseen.data.images import to_square
from unseen.data.opening import open_dataset
from unseen.errors import UnseenError
from unseen.serving.model import Model
from unseen.serving.predictor import Answers

Answer = Callable[[np.ndarray, int | None, bool], Answers]
"""`Predictor.answer`, of a model or of a file."""
_PICTURES = 6


class Parity(NamedTuple):
    """The largest difference between two probabilities, and on what it was found."""

    difference: float
    answers: int
    """How many answers were compared: images, times what the model was told of their domain."""
    pictures: str


def compare(model: Model, answer_of_file: Answer) -> Parity:
    """At the network's size and at others, one image at a time and several, for an unknown domain
    and for each known one."""
    pictures, kind = _pictures(model)
    size = model.image_size
    told = [None, *range(len(model.domains))] if model.has_opinions else [None]
    largest, answers = 0.0, 0
    for batch in _batches(pictures, size):
        squares = np.stack([to_square(Image.fromarray(pixels), size) for pixels in batch])
        for domain in told:
            expected = model.answer(squares, domain, model.has_opinions)
            found = answer_of_file(batch, domain, model.has_opinions)
            for one, other in zip(expected, found, strict=True):
                if one is not None and other is not None:
                    largest = max(largest, float(np.abs(one - other).max()))
            answers += len(batch)
    return Parity(largest, answers, kind)


def _batches(pictures: list[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """Each picture as it is; then all of them at one size, for several sizes."""
    for picture in pictures:
        yield picture[None]
    for height, width in ((size, size), (size * 5 // 3, size * 3 // 4), (size // 2 + 1, size * 2)):
        resized = [Image.fromarray(picture).resize((width, height)) for picture in pictures]
        yield np.stack([np.array(image) for image in resized])


def _pictures(model: Model) -> tuple[list[np.ndarray], str]:
    """Images of the dataset that the model was trained on, where it is available."""
    try:
        dataset = open_dataset(model.experiment.data)
        chosen = np.linspace(0, len(dataset.index()) - 1, _PICTURES).astype(int)
        pictures = [np.array(dataset.read(int(position))) for position in chosen]
        return pictures, f"images of {model.experiment.data.name}"
    except (UnseenError, OSError):
        random = np.random.default_rng(0)
        sizes = random.integers(model.image_size // 2 + 1, 2 * model.image_size, (_PICTURES, 2))
        return [_made_up(random, *size) for size in sizes], "made-up pictures"


def _made_up(random: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Soft shapes under fine grain."""
    shapes = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    soft = np.asarray(shapes.resize((int(width), int(height)), Image.Resampling.BICUBIC))
    return np.clip(soft + random.normal(0, 12, soft.shape), 0, 255).astype(np.uint8)
