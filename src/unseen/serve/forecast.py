"""Makes a forecast from a model and image files. Only runs, as models or references, need torch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from unseen.data.images import open_image, to_square
from unseen.errors import DataError, UnseenError
from unseen.forecast.forecast import FileForecast, Outlier, forecast
from unseen.forecast.profile import ModelOutputs
from unseen.results.statistics import evenly
from unseen.serve.predictor import Prediction, Predictions, Predictor, load

_BATCH = 64
MOST_IMAGES = 5000
"""Images that a forecast looks at, evenly spaced; more would not make it steadier."""
OUTLIERS = 20
_SIDE = 96


def forecast_files(
    path: Path,
    files: Sequence[Path],
    reference: Path | None = None,
    device: str = "auto",
    on_status: Callable[[str], None] = lambda text: None,
    on_image: Callable[[], None] = lambda: None,
) -> FileForecast:
    """Returns the forecast for a run, a saved model or an ONNX file on image files; `on_image` is
    called after each of them."""
    if not files:
        raise DataError("there are no images to forecast the accuracy on")
    model = load(path, device)
    if model.profile is None:
        raise UnseenError(
            f"{path} holds no profile of its validation images; forecast with the run folder, or "
            "save or export the run again"
        )
    references = []
    if reference is not None:
        from unseen.serve.evaluate import read_references

        references = read_references(reference, model, on_status, device)
    chosen = evenly(np.array(files, dtype=object), MOST_IMAGES)
    outputs, kept, problems = read_files(model, chosen.tolist(), on_image)
    made = forecast(model.profile, outputs, references)
    outliers: list[Outlier] = []
    for row, distance in made.differences.outliers(OUTLIERS) if made.differences else ():
        file, probs = kept[row], softmax(outputs.scores[row])
        try:
            thumbnail = to_square(open_image(file, str(file), window=model.window), _SIDE)
        except DataError:  # it has gone since
            continue
        best = int(probs.argmax())
        outliers.append(Outlier(file, model.classes[best], float(probs[best]), distance, thumbnail))
    return FileForecast(made, path.resolve().name, tuple(kept), tuple(problems), tuple(outliers))


def read_files(
    model: Predictor, files: Sequence[Path], on_image: Callable[[], None]
) -> tuple[ModelOutputs, list[Path], list[str]]:
    """Returns raw scores, disagreement, statistics and features of the files that can be read,
    these files, and what is wrong with the others."""
    kept: list[Prediction] = []
    problems: list[str] = []
    for each in model.stream(files, batch=_BATCH, raw=True, measure=True):
        on_image()
        if each.problem is None:
            kept.append(each)
        else:
            problems.append(each.problem)
    if not kept:
        first = f"; the first: {problems[0]}" if problems else ""
        raise DataError(f"there is no prediction for a single image{first}")

    def stacked(name: str) -> Any:
        rows = [getattr(each, name) for each in kept]
        return None if rows[0] is None else np.stack(rows)

    outputs = Predictions(stacked("probabilities"), stacked("opinions")).outputs()
    more = {name: stacked(name) for name in ("statistics", "features")}
    return outputs._replace(**more), [Path(str(each.image)) for each in kept], problems
