"""The Python API: train a recipe, open a run, predict."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from rich.console import Console

from unseen.data.dataset import OpenDatasets
from unseen.data.images import find_images
from unseen.forecast.forecast import FileForecast
from unseen.reports.figures.figure import Figure
from unseen.reports.formats import result_records, result_table
from unseen.reports.shown import Shown, confusions, html_table
from unseen.reports.trackers import choose_trackers
from unseen.results.folder import RunFolder, find_run
from unseen.results.result import RunResult, View, Views
from unseen.serve.evaluate import evaluate
from unseen.serve.export import SUFFIXES, Target, export
from unseen.serve.forecast import forecast_files
from unseen.serve.model import Model
from unseen.serve.predictor import Classified, ImageLike
from unseen.settings.experiment import Experiment, Metric
from unseen.settings.recipes import load_experiment, open_experiment
from unseen.settings.typed import Overrides
from unseen.sweeps.merge import Choice, merge_runs
from unseen.training.devices import is_first_process
from unseen.training.display import Display, progress_console
from unseen.training.execute import execute, length, remarks_before


class Run(Shown):
    """A finished run: its settings, its result and its model."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.folder = RunFolder(Path(path))
        settings = self.folder.read_settings()
        self.experiment: Experiment = open_experiment(settings, self.folder.settings)
        self.result: RunResult = self.folder.read_result()

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r})"

    @property
    def classes(self) -> list[str]:
        return list(self.result.classes)

    @property
    def domains(self) -> list[str]:
        """The domains it was trained on."""
        return list(self.result.training_domains)

    def accuracy(self, view: View = "out_of_domain", rule: str | None = None) -> dict[str, float]:
        """Accuracy by domain in one of the three measurements, under the run's rule or another."""
        return self.measure("accuracy", view, rule)

    def measure(
        self, metric: Metric | None = None, view: View = "out_of_domain", rule: str | None = None
    ) -> dict[str, float]:
        """By domain, as `accuracy`, but by the metric that the run's checkpoint was chosen by, or
        by another one: accuracy, balanced or macro_f1."""
        measured = self.result.view(rule or self.result.selection, view)
        return {d: each.measures[metric or self.result.metric] for d, each in measured.items()}

    def records(self) -> list[dict[str, Any]]:
        """What was measured of each domain in each view, under the run's own rule."""
        return list(result_records(self.result.under(self.result.selection).views))

    def plot(self) -> Figure:
        """Which classes it takes for which, by domain."""
        return confusions(self.result)

    def _repr_html_(self) -> str:
        views, metric = self.result.under(self.result.selection).views, self.result.metric
        metrics = tuple(dict.fromkeys((metric, "accuracy")))
        return html_table(self.result.label, *result_table(views, metrics, self.result.view_texts))

    @cached_property
    def model(self) -> Model:
        """The model with the weights that the run's selection rule chose."""
        return Model.from_run(self.folder)

    def predict(
        self,
        images: Iterable[ImageLike] | np.ndarray,
        domain: str | None = None,
        raw: bool = False,
    ) -> np.ndarray:
        """Class probabilities `[images, classes]`; name the domain where it is known. `raw` gives
        those that are not calibrated."""
        return self.model.predict(images, domain, raw)

    def classify(
        self, images: Iterable[ImageLike] | np.ndarray, domain: str | None = None
    ) -> list[Classified]:
        """The most likely class of each image by its name, with its probability."""
        return self.model.classify(images, domain)

    def evaluate(self, data: str | Path | None = None) -> Views:
        """The three measurements on the run's own images, or accuracy by domain on other ones: a
        folder `domain/class/*` or a manifest whose classes the run knows."""
        return evaluate(self.model, data)

    def forecast(
        self, images: Iterable[str | Path], reference: str | Path | None = None
    ) -> FileForecast:
        """How accurate the model will be on image files without labels; see `forecast_accuracy`."""
        return forecast_accuracy(self.folder.path, images, reference)

    def export(self, path: str | Path) -> Path:
        """Write the model as one file for onnxruntime (`.onnx`) or torch (`.pt2`), with its card
        beside it; nothing is kept unless its predictions agree with `predict`."""
        path = Path(path)
        to: Target = "torch" if path.suffix == SUFFIXES["torch"] else "onnx"
        return export(Model.from_run(self.folder, "cpu"), to, path).path


def forecast_accuracy(
    model: str | PathLike[str],
    images: Iterable[str | Path],
    reference: str | Path | None = None,
    *,
    device: str = "auto",
) -> FileForecast:
    """How accurate a model will be on image files that nobody has labelled, what is different about
    them, and what to do: `found.forecast.accuracy`, `.low`, `.high`, `.warnings`, `.advice`.

    `model` is a run folder, a saved model or an ONNX file; `images` are files, folders or patterns.
    `reference` is a folder of runs that left out the model's training domains in turn.
    """
    files = list(find_images(str(each) for each in images))
    runs = None if reference is None else Path(reference)
    return forecast_files(Path(model), files, runs, device)


def load_run(path: str | PathLike[str]) -> Run:
    """Open a finished run folder."""
    return Run(path)


def fit(
    recipe: str | Path,
    *,
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    console: Console | None = None,
    **overrides: Unpack[Overrides],
) -> Run:
    """Train a recipe to its end and open the run. Finished runs are not trained again.

    Overrides are settings: `fit("digits/dmg", seed=3, data={"unseen_domain": "plain"})`.
    `log` names trackers that get the run's records, too: wandb, tensorboard, mlflow.
    """
    experiment = load_experiment(recipe, overrides)
    return finish_run(experiment, find_run(Path(runs), experiment), console, log)


def finish_run(
    experiment: Experiment,
    folder: RunFolder,
    console: Console | None = None,
    log: str | Sequence[str] = (),
) -> Run:
    """Train the run in a folder to its end, unless it is finished, and open it."""
    trackers = choose_trackers(log)
    if not folder.finished:
        console = console or progress_console()
        datasets = OpenDatasets()
        steps, remarks = length(experiment, datasets), remarks_before(experiment, datasets)
        with Display(console, steps, folder.path.name) as display:
            for line in (f"Run folder: {folder.path}", *remarks) if is_first_process() else ():
                display.line(line)
            execute(experiment, folder, display, trackers, datasets=datasets)
    return Run(folder.path)


def merge(
    runs: str | Path | Iterable[str | Path],
    output: str | Path,
    *,
    choose: Choice = "all",
    console: Console | None = None,
) -> Run:
    """Average the weights of finished runs into one model of the same size and speed.

    `runs` are run folders, or folders that hold runs; they have to share images, domains, backbone,
    pretrained start and method. `greedy` leaves out those that make the average worse on
    validation images. The result is a run folder like any other; the same runs are not merged a
    second time.
    """
    paths = [runs] if isinstance(runs, str | Path) else list(runs)
    output = Path(output)
    with Display(console or progress_console(), 1, output.name) as display:
        return Run(merge_runs(paths, output, choose, display).path)
