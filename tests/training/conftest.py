"""A module with methods and networks made to be watched, and settings with all augmentations."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import save_trunk

from unseen.data.cache import cache_folder
from unseen.training import outputs

WATCHED = '''
import torch
from torch import nn
from unseen.methods.aggregate import Aggregate
from unseen.methods.base import with_gradients
from unseen.networks.stages import ImageInput, Network

calls = []


class Watched(Aggregate):
    """Writes down what is called when; its gradient is made by hand."""

    def loss(self, batch, progress):
        calls.append(("loss", progress.step, progress.steps))
        losses = super().loss(batch, progress)
        params = list(self.parameters())
        grads = [torch.full_like(p, 0.5) for p in params]
        return {"loss": with_gradients(params, grads), "task": losses["loss"].detach()}

    def edit_gradients(self, progress):
        gradients = {p.grad.unique().item() for p in self.parameters()}
        calls.append(("edit_gradients", progress.step, gradients))
        for p in self.parameters():
            p.grad.fill_(1.0)

    def after_update(self, progress):
        with torch.no_grad():
            first = next(self.parameters()).flatten()[0].item()
        calls.append(("after_update", progress.step, first))


class Endless(Aggregate):
    """An infinite gradient in step 3, while the loss is still a number."""

    def edit_gradients(self, progress):
        if progress.step == 3:
            for p in self.parameters():
                p.grad.fill_(float("inf"))


class Exploding(Aggregate):
    def loss(self, batch, progress):
        losses = super().loss(batch, progress)
        if progress.step == 4:
            losses["loss"] = losses["loss"] * torch.nan
        return losses


def dropout_network(settings, n_classes):
    stages = {
        "flatten": nn.Flatten(),
        "fc1": nn.Linear(3 * settings.image_size**2, 16),
        "dropout": nn.Dropout(0.5),
        "fc2": nn.Linear(16, n_classes),
    }
    return Network(stages, ImageInput(settings.image_size, (0.5,) * 3, (0.5,) * 3), ("fc2",))
'''


AUGMENTED = {
    "augment__randaugment": 0.5,
    "augment__random_convolution": 0.5,
    "augment__amplitude_mix": 1.0,
    "augment__erasing": 0.5,
    "augment__mixstyle": 0.5,
    "augment__mixstyle_stages": "conv2,conv3",
    "label_smoothing": 0.1,
    "optimizer__layer_decay": 0.5,
}


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module above, importable by the name `watched_parts`."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "watched_parts.py").write_text(WATCHED)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("watched_parts")
    sys.path.remove(str(folder))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; where it keeps features."""
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    return cache_folder() / "features"


@pytest.fixture(scope="session")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of all but the classifier, which then depends on a run's seed."""
    file = tmp_path_factory.mktemp("weights") / "trunk.safetensors"
    save_trunk(file)
    return str(file)


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run keeps for its report is made of few images: quicker than all of them."""
    for name in ("ANSWERED", "LOOKED_AT", "MAPPED"):
        monkeypatch.setattr(outputs, name, 24)
