"""What is measured: runs as `unseen train` puts them together, on pictures that are made here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import build_experiment
from unseen.training.devices import launch, tune_malloc
from unseen.training.display import Display
from unseen.training.session import Session, open_session

DOMAINS = ("art", "cartoon", "photo")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FILE_SIZE = 227  # pixels, as in PACS
LEARNING_RATE = 1e-5
"""Small, so that losses stay comparable: Adam's first steps follow the sign of each gradient, and
where a gradient is nearly zero, rounding decides that sign."""


@contextmanager
def workspace(pictures_per_class: int = 8) -> Iterator[Path]:
    """A folder that is gone afterwards, with JPEG files in `pictures` and a cache of its own."""
    before = os.environ.get("UNSEEN_CACHE")
    with TemporaryDirectory(prefix="unseen-bench-") as name:
        folder = Path(name)
        os.environ["UNSEEN_CACHE"] = str(folder / "cache")
        try:
            make_pictures(folder / "pictures", pictures_per_class)
            yield folder
        finally:
            del os.environ["UNSEEN_CACHE"]
            if before is not None:
                os.environ["UNSEEN_CACHE"] = before


def make_pictures(root: Path, number: int) -> None:
    """Soft shapes under fine grain: files of PACS's size in pixels and about that in bytes."""
    random = np.random.default_rng(0)
    for domain in DOMAINS:
        for label in CLASSES:
            folder = root / domain / label
            folder.mkdir(parents=True)
            for picture in range(number):
                shapes = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
                soft = np.asarray(shapes.resize((FILE_SIZE, FILE_SIZE), Image.Resampling.BICUBIC))
                grain = random.normal(0, 8, soft.shape)
                pixels = np.clip(soft + grain, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{picture}.jpg", quality=85)


def generated(folder: Path) -> dict[str, Any]:
    """Data settings for the pictures of a workspace."""
    return {"name": "folder", "root": str(folder / "pictures")}


def settings(data: dict[str, Any], method: str, network: str, image_size: int) -> Experiment:
    """3 domains of 16 images a step, random weights, Adam, on the CPU."""
    return build_experiment(
        {
            "data": data,
            "network": {"name": network, "image_size": image_size},
            "method": {"name": method},
            "optimizer": {"name": "adam", "lr": LEARNING_RATE},
            "devices": {"accelerator": "cpu"},
            "steps": 1000,
            "images_per_domain": 16,
        }
    )


def open_run(experiment: Experiment, folder: Path) -> Session:
    """A run before its first step, as the training command has it."""
    tune_malloc()
    folder.mkdir(exist_ok=True)
    display = Display(Console(quiet=True), 1, "bench")
    return launch(experiment, open_session, [(experiment, RunFolder(folder))], display)


def batch_of(session: Session, step: int = 0) -> DomainBatch:
    """The augmented batch of one step: read, then augmented, nothing in the background."""
    (batch,) = session.batches(range(step, step + 1))
    return batch


def step_on(session: Session, batch: DomainBatch) -> float:
    """One training step of unseen; its loss."""
    return session.learner.step(batch, Progress(session.step, session.steps))["loss"].item()
