"""Runs on the digits that take a second, whatever the recipes say."""

import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import load_experiment
from unseen.training.display import SilentDisplay
from unseen.training.execute import execute

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
STILL = {"optimizer__name": "sgd", "optimizer__momentum": 0.0, "optimizer__lr": 1e-30}
"""Steps that move nothing."""
UNCHANGED = {f"augment__{name}": 0 for name in ("flip", "jitter", "grayscale")}
UNCHANGED |= {"augment__crop_scale": 1}
"""No augmentation."""


def tiny(recipe: str = "digits/aggregate", **changes: Any) -> Experiment:
    """Settings of such a run; `a__b=value` is the override `a.b=value`."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    settings = TINY | dotted
    if "epochs" in dotted:
        del settings["steps"]
    return load_experiment(recipe, settings)


def train(experiment: Experiment, path: Path, until: int | None = None) -> RunFolder:
    """Carries out a run, in silence; `until` is a step to pause at."""
    folder = RunFolder(path)
    execute(experiment, folder, SilentDisplay(), until=until)
    return folder


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
