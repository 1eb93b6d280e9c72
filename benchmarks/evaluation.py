"""What averaging over the masks of three domains adds to a forward pass."""

import torch

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import CLASSES, DOMAINS, settings
from unseen.data.batch import Task
from unseen.training.build import build_method
from unseen.training.devices import tune_malloc

BATCH_SIZE = 64


def masks_over_plain(repeats: int) -> Measurement:
    tune_malloc()
    experiment = settings({"name": "digits"}, "dmg", "resnet18", 224)
    method = build_method(experiment, Task(CLASSES, DOMAINS)).eval()
    images = torch.randn(BATCH_SIZE, 3, 224, 224).to(memory_format=torch.channels_last)
    with torch.no_grad():
        return median_ratio(
            alternate(
                clock(lambda: method.predict(images)),
                clock(lambda: method.network(images)),
                repeats,
                warm_up=2,
            )
        )


FIGURES = [
    Figure(
        "dmg evaluation with 3 masks / plain forward",
        "<= 1.40",
        "DMG.predict and the network alone, ResNet-18 (layer4, fc), batch 64, 224 px",
        repeats=15,
        measure=masks_over_plain,
    )
]
