"""Makes a forecast from a model and image files: opens the model, finds references among runs."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import softmax

from unseen.data.cache import cache_folder
from unseen.data.dataset import OpenDatasets
from unseen.data.images import open_image, to_square
from unseen.errors import DataError, UnseenError
from unseen.forecast.estimate import Reference, gaps
from unseen.forecast.forecast import FileForecast, Forecast, Outlier, forecast
from unseen.forecast.profile import (
    VERSION,
    ModelOutputs,
    Profile,
    image_statistics,
)
from unseen.results.files import digest_of, read_arrays_if_whole, write_arrays
from unseen.results.folder import RunFolder, find_runs
from unseen.results.result import RunResult
from unseen.results.statistics import evenly
from unseen.serve.model import Model
from unseen.serve.predictor import NOT_FINITE, Predictor, load, prefetch
from unseen.training.build import build_images
from unseen.training.devices import fabric_on
from unseen.training.profile import observe
from unseen.training.session import Session, open_trained

_BATCH = 64
MOST_IMAGES = 5000
"""Images that a forecast looks at, evenly spaced; more would not make it steadier."""
LOOKED_AT = 500
"""Images of a domain that a reference left out, evenly spaced."""
OUTLIERS = 20
_SIDE = 96
_DATASETS = OpenDatasets()
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

    def read(path: Path) -> tuple[Path, np.ndarray, np.ndarray] | str:
        try:
            image = open_image(path, str(path), window=model.window)
            pixels = to_square(image, model.image_size)
            return path, pixels, image_statistics(image, path.stat().st_size)
        except (DataError, OSError) as error:
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


def read_references(
    runs: Path, model: Predictor, on_status: OnStatus, device: str = "auto"
) -> list[Reference]:
    """Reads all references among the runs below a folder; raises where there is none."""
    if not runs.is_dir():
        raise UnseenError(f"there is no folder {runs}; --reference names a folder of runs")
    finished = [(each, each.read_result()) for each in find_runs(runs) if each.finished]
    candidates = list(find_candidates(finished, model))
    if not candidates:
        kinds = sorted({f"{each.method} on {each.backbone}" for _, each in finished})
        leaking = sum(not set(each.training_domains) <= set(model.domains) for _, each in finished)
        raise UnseenError(
            f"no run in {runs} can serve as a reference: it takes finished runs of "
            f"{' on '.join(model.kind)} that were trained on some of {', '.join(model.domains)} "
            f"and tested on another of these. Found {len(finished)} finished runs"
            + (f" ({', '.join(kinds[:4])})" if kinds else "")
            + (f", {leaking} of them trained on other domains" if leaking else "")
            + ". Train the model's recipe with data.training_domains restricted to "
            f"{','.join(model.domains)}, each of them left out in turn"
        )
    found: list[Reference] = []
    for number, (folder, domains) in enumerate(candidates, start=1):
        on_status(f"reference {number} of {len(candidates)}: {folder.path.name}")
        found += read_reference(folder, domains, device)
    return found


def find_candidates(
    finished: Iterable[tuple[RunFolder, RunResult]], model: Predictor
) -> Iterator[tuple[RunFolder, list[str]]]:
    """Yields runs of the same kind of model that were trained on some of its training domains, and
    those of these domains that they left out.

    A run that was trained on anything else, or a domain that the model was not trained on, is none:
    it may know labels of the very images that are asked about.
    """
    kind = (*model.kind, tuple(model.classes))
    for folder, result in finished:
        alike = (result.method, result.backbone, result.classes) == kind
        knows_more = not set(result.training_domains) <= set(model.domains)
        if not alike or knows_more or result.merged or result.setting != "generalization":
            continue
        measured = result.view(result.selection, "out_of_domain")
        domains = [d for d in result.unseen_domains if d in model.domains and d in measured]
        if domains:
            yield folder, domains


def read_reference(
    folder: RunFolder, domains: Sequence[str], device: str = "auto"
) -> Iterator[Reference]:
    """Yields what each estimate says of domains that a run left out, and the truth: the accuracy
    that the run recorded, so that no label is looked at. What the model makes of their images is
    kept in the cache."""
    result, profile = folder.read_result(), Profile.read(folder.checked(folder.profile))
    weights = digest_of(folder.weights(result.selection))
    session: Session | None = None
    for domain in domains:
        about = f"{VERSION} {domain} with features {LOOKED_AT} {weights} {result.data}"
        name = hashlib.sha256(about.encode()).hexdigest()[:32]
        cached = cache_folder() / "forecast" / f"{name}.npz"
        found = read_arrays_if_whole(cached)
        if "scores" not in found:
            session = session or _open(folder, result, device)
            method, images = session.learner.method, session.runs[0].images
            rows = evenly(images.roles.out_of_domain[domain], LOOKED_AT)
            outputs = observe(method, session.feed, rows, rows, session.fabric.autocast)
            found = {key: value for key, value in outputs._asdict().items() if value is not None}
            write_arrays(cached, found)
        truth = result.view(result.selection, "out_of_domain")[domain].accuracy
        apart = gaps(profile, ModelOutputs(**found))
        yield Reference(folder.path.name, domain, profile.accuracy, truth, apart)


def _open(folder: RunFolder, result: RunResult, device: str) -> Session:
    """Opens the run with its images, which have to be those it was trained on."""
    model = Model.from_run(folder, device)
    experiment = model.experiment
    images = build_images(_DATASETS.open(experiment.data), experiment, model.image_size)
    if images.prepared.content != result.data:
        raise DataError(
            f"the images have changed since the run in {folder.path} was trained; put them back, "
            "or train it again"
        )
    return open_trained(
        fabric_on(model.device, experiment), experiment, model.method, images, folder
    )
