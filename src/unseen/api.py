"""The Python API: train a recipe, open a run, predict."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from unseen.config import DataSettings, Experiment
from unseen.data.augment import PixelScale, to_input
from unseen.data.batch import Task
from unseen.data.feed import Feed, Place
from unseen.data.images import open_image, to_rgb, to_square
from unseen.data.prepare import PreparedImages, open_dataset, prepare
from unseen.data.roles import by_domain
from unseen.errors import DataError, SettingsError, unknown_name
from unseen.evaluation.protocol import Evaluator, three_views
from unseen.methods.base import Method
from unseen.recipe_files import build_experiment, load_experiment
from unseen.records import RunFolder, run_name
from unseen.trackers.fan_out import choose_trackers
from unseen.training.build import build_images, build_method
from unseen.training.checkpoints import load_weights
from unseen.training.display import Display
from unseen.training.execute import execute, length

ImageLike = str | Path | Image.Image | np.ndarray
_BATCH = 128


class Run:
    """A finished run: its settings, its result and its model."""

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path))
        self.experiment: Experiment = build_experiment(
            self.folder.read_settings(), str(self.folder.settings)
        )
        self.result: dict[str, Any] = self.folder.read_result()

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r})"

    @property
    def classes(self) -> list[str]:
        return self.result["classes"]

    @property
    def domains(self) -> list[str]:
        """The domains it was trained on."""
        return self.result["training_domains"]

    def accuracy(self, view: str = "out_of_domain", rule: str | None = None) -> dict[str, float]:
        """Accuracy by domain in one of the three views, under the run's own rule or another."""
        views = self.result["results"][rule or self.result["selection"]]["views"]
        if view not in views:
            raise SettingsError(unknown_name("view", view, views))
        return {domain: summary["accuracy"] for domain, summary in views[view].items()}

    @cached_property
    def method(self) -> Method:
        """The model with the weights that the run's selection rule chose."""
        without_download = self.experiment.network.model_copy(update={"pretrained": False})
        experiment = self.experiment.model_copy(update={"network": without_download})
        target = self.experiment.data.unseen_domain
        task = Task(
            tuple(self.classes),
            tuple(self.domains),
            target[0] if self.experiment.setting == "adaptation" else None,
        )
        method = build_method(experiment, task)
        load_weights(self.folder.weights(self.result["selection"]), method)
        return method.eval()

    @torch.no_grad()
    def predict(
        self, images: Sequence[ImageLike] | np.ndarray, domain: str | None = None
    ) -> np.ndarray:
        """Class probabilities `[images, classes]`; name the domain where it is known."""
        if isinstance(images, ImageLike) and np.ndim(images) != 4:
            raise DataError("predict takes a list of images; put a single one into a list")
        if domain is not None and domain not in self.domains:
            raise SettingsError(unknown_name("training domain", domain, self.domains))
        known = None if domain is None else self.domains.index(domain)
        network = self.method.network
        scale = PixelScale(network.mean, network.std)
        parts = [np.zeros((0, len(self.classes)), dtype=np.float32)]
        for start in range(0, len(images), _BATCH):
            chunk = images[start : start + _BATCH]
            pixels = np.stack([_pixels(image, network.image_size) for image in chunk])
            inputs = to_input(torch.from_numpy(pixels).permute(0, 3, 1, 2), scale)
            parts.append(self.method.predict(inputs, known).softmax(dim=1).numpy())
        return np.concatenate(parts)

    def evaluate(self, data: str | Path | None = None) -> dict[str, Any]:
        """The three views on the run's own images, or accuracy by domain on other ones.

        `data` is a folder `domain/class/*` or a manifest whose classes the run knows; the model is
        not told these domains, so all of them are reported as out of domain.
        """
        if data is None:
            images = build_images(
                open_dataset(self.experiment.data), self.experiment, self.method.network.image_size
            )
            prepared = images.prepared
            out_of_domain, in_domain = images.roles.out_of_domain, images.roles.in_domain
        else:
            prepared = self._prepare_other(Path(data))
            out_of_domain, in_domain = by_domain(prepared.index), {}
        network = self.method.network
        place, scale = Place(torch.device("cpu")), PixelScale(network.mean, network.std)
        evaluator = Evaluator(
            Feed(prepared, scale, place).evaluation,
            len(self.classes),
            place.device,
            lambda counts: counts,
        )
        uses_domain = self.method.uses_domain
        with torch.autocast("cpu", torch.bfloat16, enabled=self.experiment.precision == "bf16"):
            return three_views(
                evaluator, self.method.predict, uses_domain, out_of_domain, in_domain
            )

    def _prepare_other(self, data: Path) -> PreparedImages:
        """Images of other domains, with labels in the order of this run's classes."""
        name = "folder" if data.is_dir() else "manifest"
        dataset = open_dataset(DataSettings(name=name, root=data))
        unknown = sorted(set(dataset.index().classes) - set(self.classes))
        if unknown:
            raise DataError(
                f"{data} has classes that this run does not know: {', '.join(unknown[:5])} "
                f"(it knows {', '.join(self.classes)})"
            )
        prepared = prepare(dataset, self.method.network.image_size)
        order = np.array([self.classes.index(name) for name in prepared.index.classes])
        prepared.index = replace(prepared.index, labels=order[prepared.index.labels])
        return prepared


def _pixels(image: ImageLike, size: int) -> np.ndarray:
    """Prepared exactly as training images are."""
    if isinstance(image, str | Path):
        image = open_image(Path(image), str(image))
    elif isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim not in (2, 3):
            raise DataError(
                f"an array should be uint8 [height, width, 3], got {image.dtype} {image.shape}"
            )
        image = Image.fromarray(image)
    return to_square(to_rgb(image), size)


def load_run(path: str | Path) -> Run:
    """Open a finished run folder."""
    return Run(path)


def fit(
    recipe: str | Path,
    *,
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    console: Console | None = None,
    **overrides: Any,
) -> Run:
    """Train a recipe to its end and open the run. Finished runs are not trained again.

    Overrides are settings: `fit("digits/dmg", seed=3, data={"unseen_domain": "plain"})`.
    `log` names trackers that get the run's records, too: wandb, tensorboard, mlflow.
    """
    return carry_out(load_experiment(recipe, overrides), runs, console, log)


def carry_out(
    experiment: Experiment,
    runs: str | Path,
    console: Console | None = None,
    log: str | Sequence[str] = (),
) -> Run:
    """Train checked settings in their own folder below `runs`."""
    return carry_on(experiment, RunFolder(Path(runs) / run_name(experiment)), console, log)


def carry_on(
    experiment: Experiment,
    folder: RunFolder,
    console: Console | None = None,
    log: str | Sequence[str] = (),
) -> Run:
    """Bring the run in a folder to its end, and open it."""
    trackers = choose_trackers(log)
    if not folder.finished:
        console = console or Console(stderr=True)
        with Display(console, length(experiment), folder.path.name) as display:
            execute(experiment, folder, display, trackers)
    return Run(folder.path)
