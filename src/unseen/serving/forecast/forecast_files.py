"""From a model and image files to a forecast: opens the model, finds its profile and references."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unseen.data.images import open_image, to_square
from unseen.errors import DataError, UnseenError
from unseen.forecast.file_forecast import FileForecast, Strange
from unseen.forecast.forecast import Forecast, forecast
from unseen.forecast.profile import Profile
from unseen.records.folder import RunFolder
from unseen.serving.forecast.observe import ObservedFiles, Step, observe_files
from unseen.serving.load import load
from unseen.serving.predictor import Predictor

if TYPE_CHECKING:
    from unseen.serving.forecast.references import Known, Say

MOST_IMAGES = 5000
"""Images that a forecast looks at, evenly spaced; more would not make it steadier."""
STRANGEST = 20
_SIDE = 96


def forecast_files(
    path: Path,
    files: Sequence[Path],
    reference: Path | None = None,
    device: str = "auto",
    say: "Say" = lambda text: None,
    step: Step = lambda number: None,
) -> FileForecast:
    """The forecast for a run, a saved model or an ONNX file on image files."""
    files = _evenly(files)
    if not files:
        raise DataError("there are no images to forecast the accuracy on")
    model = load(path, device)
    profile = profile_of(model, path, device)
    references = []
    if reference is not None:  # these take torch, an ONNX file by itself does not
        from unseen.serving.forecast.references import read_references

        references = read_references(reference, known_of(model), say, device)
    found = observe_files(model, files, step)
    made = forecast(profile, found.observed, references)
    strangest = tuple(_strangest(made, found, model))
    return FileForecast(made, path.resolve().name, found.files, found.problems, strangest)


def profile_of(model: Predictor, path: Path, device: str = "auto") -> Profile:
    """The model's own; of a run of an older version it is made from the run's images."""
    if model.profile is not None:
        return model.profile
    if RunFolder(path).settings.is_file():
        from unseen.serving.forecast.run_images import RunImages

        return RunImages(RunFolder(path), device).profile
    raise UnseenError(
        f"{path} holds no profile of its validation images: it was made by an older version. "
        "Forecast with the run folder, or save or export the run again"
    )


def known_of(model: Predictor) -> "Known":
    """What the model was made of."""
    from unseen.serving.forecast.references import Known
    from unseen.serving.onnx_model import OnnxModel

    if isinstance(model, OnnxModel):
        method, backbone = model.about.method, model.about.backbone
    else:
        from unseen.serving.model import Model

        assert isinstance(model, Model)
        method, backbone = model.experiment.method.name, model.experiment.network.name
    return Known(method, backbone, tuple(model.classes), tuple(model.domains))


def _strangest(made: Forecast, found: ObservedFiles, model: Predictor) -> Iterator[Strange]:
    if made.differences is None:
        return
    logs = found.observed.scores - found.observed.scores.max(axis=1, keepdims=True)
    probabilities = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    for row in made.differences.strangest[:STRANGEST]:
        file, called = found.files[row], int(probabilities[row].argmax())
        try:
            thumbnail = to_square(open_image(file, str(file)), _SIDE)
        except DataError:  # it has gone since
            continue
        distance = float(made.differences.distance[row])
        answer = model.classes[called]
        yield Strange(file, answer, float(probabilities[row, called]), distance, thumbnail)


def _evenly(files: Sequence[Path]) -> Sequence[Path]:
    if len(files) <= MOST_IMAGES:
        return files
    return [
        files[place] for place in np.linspace(0, len(files) - 1, MOST_IMAGES).round().astype(int)
    ]
