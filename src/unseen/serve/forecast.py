"""Makes a forecast from a model and image files. Only runs, as models or references, need torch."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import softmax

from unseen.data.images import open_image, to_square
from unseen.errors import DataError, UnseenError
from unseen.forecast.estimate import Reference
from unseen.forecast.forecast import FileForecast, Forecast, Outlier, forecast
from unseen.forecast.profile import ModelOutputs
from unseen.results.statistics import evenly
from unseen.serve.predictor import NOT_FINITE, Predictor, load, prefetch, read_pixels

_BATCH = 64
MOST_IMAGES = 5000
"""Images that a forecast looks at, evenly spaced; more would not make it steadier."""
OUTLIERS = 20
_SIDE = 96
OnStatus = Callable[[str], None]
OnImages = Callable[[int], None]
"""Gets how many more images are done."""


def forecast_files(
    path: Path,
    files: Sequence[Path],
    reference: Path | None = None,
    device: str = "auto",
    on_status: OnStatus = lambda text: None,
    on_images: OnImages = lambda number: None,
) -> FileForecast:
    """Returns the forecast for a run, a saved model or an ONNX file on image files."""
    if not files:
        raise DataError("there are no images to forecast the accuracy on")
    model = load(path, device)
    if model.profile is None:
        raise UnseenError(
            f"{path} holds no profile of its validation images; forecast with the run folder, or "
            "save or export the run again"
        )
    references: list[Reference] = []
    if reference is not None:
        from unseen.serve.references import read_references

        references = read_references(reference, model, on_status, device)
    chosen = evenly(np.array(files, dtype=object), MOST_IMAGES)
    outputs, kept, problems = read_files(model, chosen.tolist(), on_images)
    made = forecast(model.profile, outputs, references)
    outliers = tuple(_outliers(made, outputs.scores, kept, model))
    return FileForecast(made, path.resolve().name, tuple(kept), tuple(problems), outliers)


def read_files(
    model: Predictor, files: Sequence[Path], on_images: OnImages
) -> tuple[ModelOutputs, list[Path], list[str]]:
    """Returns raw scores, disagreement, statistics and features of the files that can be read,
    these files, and what is wrong with the others."""

    def read(path: Path) -> tuple[Path, np.ndarray, np.ndarray | None] | str:
        try:
            found = read_pixels(path, str(path), model.image_size, model.window, measure=True)
            return path, *found
        except DataError as error:
            return str(error)

    kept: list[Path] = []
    parts: list[ModelOutputs] = []
    problems: list[str] = []
    for batch in prefetch(read, files, _BATCH):
        problems += [each for each in batch if isinstance(each, str)]
        good = [each for each in batch if not isinstance(each, str)]
        on_images(len(batch))
        if not good:
            continue
        paths, pixels, statistics = zip(*good, strict=True)
        found = model.predict_pixels(np.stack(pixels), raw=True)
        features = model.features(np.stack(pixels))
        outputs = found.outputs()._replace(statistics=np.stack(statistics), features=features)
        finite = found.finite()
        parts.append(outputs.rows(finite))
        for path, is_finite in zip(paths, finite, strict=True):
            kept += [path] if is_finite else []
            problems += [] if is_finite else [f"{path}: {NOT_FINITE}"]
    if not kept:
        first = f"; the first: {problems[0]}" if problems else ""
        raise DataError(f"there is no prediction for a single image{first}")
    columns = (
        None if any(each is None for each in column) else np.concatenate(column)
        for column in zip(*(part[1:] for part in parts), strict=True)
    )
    return ModelOutputs(np.concatenate([each.scores for each in parts]), *columns), kept, problems


def _outliers(
    made: Forecast, scores: np.ndarray, files: Sequence[Path], model: Predictor
) -> Iterator[Outlier]:
    if made.differences is None:
        return
    for row in made.differences.outliers[:OUTLIERS]:
        probs = softmax(scores[row])
        try:
            thumbnail = to_square(
                open_image(files[row], str(files[row]), window=model.window), _SIDE
            )
        except DataError:  # it has gone since
            continue
        best, distance = int(probs.argmax()), float(made.differences.distance[row])
        yield Outlier(files[row], model.classes[best], float(probs[best]), distance, thumbnail)
