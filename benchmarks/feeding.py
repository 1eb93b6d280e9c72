"""What augmented batches cost: beside a training step, and beside files through PIL."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import batch_of, generated, open_run, settings, step_on, workspace
from unseen.data.dataset import FileDataset, open_dataset
from unseen.training.session import Session

IMAGE_SIZE = 128


@contextmanager
def opened_run() -> Iterator[Session]:
    """EfficientNet-Lite0 on PACS below $UNSEEN_DATA; without it, on generated files."""
    root = os.environ.get("UNSEEN_DATA")
    if root and (Path(root) / "PACS").is_dir():
        data: dict[str, Any] = {"name": "pacs", "root": f"{root}/PACS", "unseen_domain": "sketch"}
        with TemporaryDirectory(prefix="unseen-bench-") as folder:
            yield _open(data, Path(folder))
    else:
        with workspace(pictures_per_class=50) as folder:
            yield _open(generated(folder), folder)


def _open(data: dict[str, Any], folder: Path) -> Session:
    experiment = settings(data, "aggregate", "efficientnet_lite0", IMAGE_SIZE)
    return open_run(experiment, folder / "run")


def share_of_step(repeats: int) -> Measurement:
    """Reading runs beside the step in a thread; here it is waited for, so all of it counts."""
    with opened_run() as session:
        batch = batch_of(session)
        steps = iter(range(1, 10**6))
        pairs = alternate(
            clock(lambda: batch_of(session, next(steps))),
            clock(lambda: step_on(session, batch)),
            repeats,
            warm_up=3,
        )
        return median_ratio(pairs, remark=f"on {session.shared.data.name}")


def pil_over_prepared(repeats: int) -> Measurement:
    """Both on one thread, on the same images; per image, as both make whole batches."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with opened_run() as session:
            files = FilesThroughPIL(session)
            ours, theirs = iter(range(10**6)), iter(range(10**6))
            pairs = alternate(
                clock(lambda: files.batch(next(theirs))),
                clock(lambda: batch_of(session, next(ours))),
                repeats,
                warm_up=3,
            )
            ms = np.median(pairs, axis=0) * 1000 / session.runs[0].sampler.batch_size
            return median_ratio(pairs, remark=f"{ms[0]:.2f} and {ms[1]:.2f} ms per image")
    finally:
        torch.set_num_threads(threads)


class FilesThroughPIL:
    """The usual training transform (DomainBed's), from the files of the same batches."""

    def __init__(self, session: Session) -> None:
        dataset = open_dataset(session.shared.data)
        assert isinstance(dataset, FileDataset)
        self._dataset = dataset
        self._sampler = session.runs[0].sampler
        self._transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(IMAGE_SIZE, scale=(0.7, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.3, 0.3, 0.3, 0.3),
                transforms.RandomGrayscale(),
                transforms.ToTensor(),
                transforms.Normalize(session.feed.scale.mean, session.feed.scale.std),
            ]
        )

    def batch(self, step: int) -> Tensor:
        rows, _, _ = self._sampler.positions(step)
        return torch.stack([self._read(int(row)) for row in rows])

    def _read(self, position: int) -> Tensor:
        with Image.open(self._dataset.path(position)) as image:
            tensor = self._transform(image.convert("RGB"))
        assert isinstance(tensor, Tensor)
        return tensor


FIGURES = [
    Figure(
        "share of step time spent on feeding augmented batches",
        "< 0.10",
        "reading and augmenting 3 x 16 images at 128 px / the EfficientNet-Lite0 step on them",
        repeats=20,
        measure=share_of_step,
    ),
    Figure(
        "PIL per image time / ours",
        ">= 4",
        "files through PIL with the usual transform / prepared images augmented in batches; "
        "128 px, one thread each",
        repeats=20,
        measure=pil_over_prepared,
    ),
]
