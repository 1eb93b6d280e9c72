"""Settings of a run on the digits that takes a second, whatever the recipes say."""

import math
from pathlib import Path

import torch
from safetensors.torch import save_file

TINY = {
    "data.unseen_domain": "outlines",
    "network.image_size": 16,
    "images_per_domain": 2,
    "optimizer.lr": 1e-3,
    "schedule.name": "constant",
    "steps": 6,
    "evaluate_every": 3,
    "checkpoint_every": 2,
    "log_every": 1,
    "devices.accelerator": "cpu",
}


def save_trunk(file: Path) -> None:
    """Write weights of `small_cnn` but for its classifier, always the same: what is frozen then
    is equal in all runs, which is why those may be trained together."""
    random = torch.Generator().manual_seed(5)
    shapes = {
        "conv1.0": (16, 3, 5, 5),
        "conv1.2": (16,),
        "conv2.0": (32, 16, 3, 3),
        "conv2.2": (32,),
        "conv3.0": (64, 32, 3, 3),
        "conv3.1": (64,),
        "fc1.0": (128, 256),
    }
    weights = dict[str, torch.Tensor]()
    for name, shape in shapes.items():
        spread = math.prod(shape[1:]) ** -0.5 if shape[1:] else 0.0  # of a norm: no spread, all 1
        values = torch.randn(shape, generator=random) * spread + (not shape[1:])
        layer = f"stages.{name}"
        weights |= {f"{layer}.weight": values, f"{layer}.bias": torch.zeros(shape[0])}
    save_file(weights, file)
