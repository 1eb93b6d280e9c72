"""From a model and image files to a forecast: opens the model, finds its profile and references."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from unseen.data.cache import cache_folder
from unseen.data.dataset import OpenDatasets
from unseen.data.features import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.images import open_image, to_square
from unseen.errors import DataError, UnseenError
from unseen.forecast.estimate import Reference, gaps
from unseen.forecast.forecast import FileForecast, Forecast, Strange, forecast
from unseen.forecast.profile import VERSION, Observed, Profile, disagreement, image_statistics
from unseen.results.files import read_arrays_if_whole, write_arrays
from unseen.results.folder import RunFolder, find_runs
from unseen.results.result import RunResult
from unseen.results.statistics import evenly
from unseen.serve.load import load
from unseen.serve.model import Model
from unseen.serve.predictor import Predictor
from unseen.training.build import Images, build_images
from unseen.training.features import plain_version
from unseen.training.profile import Answerer, make_profile

if TYPE_CHECKING:
    pass


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


Say = Callable[[str], None]


class Known(NamedTuple):
    """What a model was made of: references may know this and no more."""

    method: str
    backbone: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    """Its training domains, whose labels are known."""


class Candidate(NamedTuple):
    """A run, and a domain that it left out."""

    folder: RunFolder
    result: RunResult
    domain: str


def read_references(runs: Path, known: Known, say: Say, device: str = "auto") -> list[Reference]:
    """All references among the runs below a folder. Raises where there is none."""
    candidates = list(find_candidates(runs, known))
    if not candidates:
        raise UnseenError(_about_none(runs, known))
    found: list[Reference] = []
    opened: RunImages | None = None
    for folder, _, domain in candidates:
        if opened is None or opened.folder is not folder:
            say(f"reference {len(found) + 1} of {len(candidates)}: {folder.path.name}")
            opened = RunImages(folder, device)
        left_out = opened.left_out(domain)
        profile = opened.profile
        found.append(
            Reference(
                folder.path.name,
                domain,
                profile.accuracy,
                left_out.accuracy,
                gaps(profile, left_out.observed),
            )
        )
    return found


def find_candidates(runs: Path, known: Known) -> Iterator[Candidate]:
    """Runs of the same kind of model that were trained on some of its training domains, and each of
    these that they left out.

    A run that was trained on anything else, or a domain that the model was not trained on, is none:
    it may know labels of the very images that are asked about.
    """
    for folder, result in _finished(runs):
        alike = (result.method, result.backbone) == (known.method, known.backbone)
        if not alike or result.classes != known.classes or result.merged is not None:
            continue
        if result.setting != "generalization" or not set(result.training_domains) <= set(
            known.domains
        ):
            continue
        measured = result.view(result.selection, "out_of_domain")
        for domain in result.unseen_domains:
            if domain in known.domains and domain in measured:
                yield Candidate(folder, result, domain)


def _finished(runs: Path) -> Iterator[tuple[RunFolder, RunResult]]:
    if not runs.is_dir():
        raise UnseenError(f"there is no folder {runs}; --reference names a folder of runs")
    for folder in find_runs(runs):
        if folder.finished:
            yield folder, folder.read_result()


def _about_none(runs: Path, known: Known) -> str:
    """What was found, and what to train."""
    results = [result for _, result in _finished(runs)]
    kinds = sorted({f"{each.method} on {each.backbone}" for each in results})
    domains = ",".join(known.domains)
    leaking = sum(not set(each.training_domains) <= set(known.domains) for each in results)
    return (
        f"no run in {runs} can serve as a reference: it takes finished runs of {known.method} on "
        f"{known.backbone} that were trained on some of {', '.join(known.domains)} and tested on "
        f"another of these. Found {len(results)} finished runs"
        + (f" ({', '.join(kinds[:4])})" if kinds else "")
        + (f", {leaking} of them trained on other domains" if leaking else "")
        + f". Train the model's recipe with data.training_domains restricted to {domains}, each of "
        "them left out in turn"
    )


_DATASETS = OpenDatasets()
LOOKED_AT = 500
"""Images of a domain that was left out, evenly spaced."""


class LeftOut(NamedTuple):
    """What a run says of a domain that it left out, and how often it is right there."""

    observed: Observed
    accuracy: float
    images: int


class RunImages:
    """Opened only as far as it is asked for; answers are kept in the cache."""

    def __init__(self, folder: RunFolder, device: str = "auto") -> None:
        self.folder, self.device = folder, device
        self.result: RunResult = folder.read_result()

    @cached_property
    def profile(self) -> Profile:
        """The run's own; made now for a run of an older version."""
        if self.folder.profile.is_file():
            return Profile.read(self.folder.profile)
        file = self._cached("profile")
        if file.is_file():
            try:
                return Profile.read(file)
            except UnseenError:  # it is made again
                pass
        profile = make_profile(self._answerer, self._images)
        profile.write(file)
        return profile

    def left_out(self, domain: str) -> LeftOut:
        """Labels are not looked at: the accuracy is the one that the run recorded."""
        measured = self.result.view(self.result.selection, "out_of_domain")[domain]
        file = self._cached(f"answers on {domain}")
        found = read_arrays_if_whole(file)
        if "scores" not in found:
            rows = evenly(self._images.roles.out_of_domain[domain], LOOKED_AT)
            observed = self._answerer.observe(rows, rows)
            found = {key: value for key, value in observed._asdict().items() if value is not None}
            write_arrays(file, found)
        observed = Observed(**found)
        return LeftOut(observed, measured.accuracy, measured.images)

    def _cached(self, what: str) -> Path:
        about = (
            f"{VERSION} {what} with features {LOOKED_AT} {self._weights_digest} {self.result.data}"
        )
        return (
            cache_folder() / "forecast" / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.npz"
        )

    @cached_property
    def _weights_digest(self) -> str:
        weights = self.folder.weights(self.result.selection)
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    @cached_property
    def _model(self) -> Model:
        return Model.from_run(self.folder, self.device)

    @cached_property
    def _images(self) -> Images:
        experiment = self._model.experiment
        images = build_images(_DATASETS.open(experiment.data), experiment, self._model.image_size)
        if images.prepared.content != self.result.data:
            raise DataError(
                f"the images have changed since the run in {self.folder.path} was trained; put "
                "them back, or train it again"
            )
        return images

    @cached_property
    def _answerer(self) -> Answerer:
        model, prepared = self._model, self._images.prepared
        process = Process(model.device)
        feed = Feed(prepared, model.scale, process)
        network, settings = model.method.network, model.experiment.network
        if network.frozen_until is not None and settings.store_features:
            stored = plain_version(prepared, network, settings, feed.unlabelled).file.open()
            if stored is not None:  # they need not be computed again
                feed = Feed(StoredFeatures(prepared.index, stored), model.scale, process)
        if model.experiment.precision != "bf16":
            return Answerer(model.method, feed, nullcontext)
        return Answerer(
            model.method, feed, lambda: torch.autocast(model.device.type, torch.bfloat16)
        )


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
        pass

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
        pass

        return RunImages(RunFolder(path), device).profile
    raise UnseenError(
        f"{path} holds no profile of its validation images: it was made by an older version. "
        "Forecast with the run folder, or save or export the run again"
    )


def known_of(model: Predictor) -> "Known":
    """What the model was made of."""
    pass
    from unseen.serve.onnx import OnnxModel

    if isinstance(model, OnnxModel):
        method, backbone = model.about.method, model.about.backbone
    else:
        from unseen.serve.model import Model

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
