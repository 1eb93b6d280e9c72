"""What averaging over the masks of three domains costs in an exported file."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.figures import Clock, Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import CLASSES, DOMAINS, settings
from unseen.data.batch import Task
from unseen.serve.export import export
from unseen.serve.model import Model
from unseen.serve.onnx import OnnxModel
from unseen.training.build import build_method

BATCH_SIZE = 16
SIZE = 224


def dmg_over_three_passes(repeats: int) -> Measurement:
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_SIZE, SIZE, SIZE, 3), dtype=np.uint8)
    with TemporaryDirectory(prefix="unseen-bench-") as folder:
        masks, plain = (_exported(method, Path(folder)) for method in ("dmg", "aggregate"))
        pairs = alternate(_passes(masks, pixels, 1), _passes(plain, pixels, 3), repeats, warm_up=2)
    return median_ratio(pairs)


def _exported(method: str, folder: Path) -> OnnxModel:
    experiment = settings({"name": "digits"}, method, "resnet18", SIZE)
    model = Model(build_method(experiment, Task(CLASSES, DOMAINS)), experiment, "", "cpu")
    return OnnxModel(export(model, "onnx", folder / f"{method}.onnx").path, "cpu")


def _passes(model: OnnxModel, pixels: np.ndarray, number: int) -> Clock:
    def work() -> None:
        for _ in range(number):
            model.predict_pixels(pixels)

    return clock(work)


FIGURES = [
    Figure(
        "exported dmg with 3 masks / three plain passes, onnxruntime",
        "<= 0.55",
        "an exported DMG and an exported aggregate model called three times, ResNet-18, batch 16, "
        "224 px",
        repeats=15,
        measure=dmg_over_three_passes,
    )
]
