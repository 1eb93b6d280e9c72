"""What a model makes of image files that nobody has labelled."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.data.images import open_image, to_square
from unseen.errors import DataError
from unseen.forecast.disagreement import disagreement
from unseen.forecast.image_statistics import image_statistics
from unseen.forecast.profile import Observed
from unseen.serving.predictor import Predictor

_BATCH = 64
_LEAST = 1e-30
"""Probabilities below have no logarithm of use."""

Step = Callable[[int], None]
"""Gets how many more images are done."""


class ObservedFiles(NamedTuple):
    observed: Observed
    files: tuple[Path, ...]
    """Of the rows, in order."""
    problems: tuple[str, ...]
    """Of files that cannot be read."""


def observe_files(model: Predictor, files: Sequence[Path], step: Step) -> ObservedFiles:
    """Raw scores, disagreement, statistics and features; unreadable files are left out."""
    parts: list[Observed] = []
    kept: list[Path] = []
    problems: list[str] = []
    for read in _read(files, model.image_size):
        good = [each for each in read if not isinstance(each, str)]
        problems += [each for each in read if isinstance(each, str)]
        if good:
            kept += [path for path, _, _ in good]
            statistics = np.stack([each for _, _, each in good])
            pixels = np.stack([each for _, each, _ in good])
            parts.append(observe_pixels(model, pixels)._replace(statistics=statistics))
        step(len(read))
    if not parts:
        first = f"; the first: {problems[0]}" if problems else ""
        raise DataError(f"not one image could be read{first}")
    return ObservedFiles(_joined(parts), tuple(kept), tuple(problems))


def observe_pixels(model: Predictor, pixels: np.ndarray) -> Observed:
    """For uint8 `[images, size, size, 3]`, prepared as the model expects them."""
    answers = model.answer(pixels, None, model.has_opinions, raw=True)
    scores = np.log(np.maximum(answers.probabilities, _LEAST))
    apart = None if answers.opinions is None else disagreement(answers.opinions)
    return Observed(scores, apart, None, model.features(pixels))


def _read(
    files: Sequence[Path], size: int
) -> Iterator[list[tuple[Path, np.ndarray, np.ndarray] | str]]:
    """Batches of file, pixels and statistics, or of what is wrong with a file."""

    def read(path: Path) -> tuple[Path, np.ndarray, np.ndarray] | str:
        try:
            image = open_image(path, str(path))
            return path, to_square(image, size), image_statistics(image, path.stat().st_size)
        except (DataError, OSError) as error:
            return str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(files), _BATCH):
            yield list(pool.map(read, files[start : start + _BATCH]))


def _joined(parts: Sequence[Observed]) -> Observed:
    def column(name: str) -> np.ndarray | None:
        values = [getattr(each, name) for each in parts]
        return None if any(each is None for each in values) else np.concatenate(values)

    scores = np.concatenate([each.scores for each in parts])
    return Observed(scores, *(column(name) for name in Observed._fields[1:]))
