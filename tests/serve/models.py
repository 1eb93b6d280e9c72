"""Small models with opinions of their own: random weights, but probabilities far from equal."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unseen.data.batch import Task
from unseen.methods.base import DomainAware, Method
from unseen.serve.model import Model
from unseen.settings.recipes import build_experiment
from unseen.training.build import build_method

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
DOMAINS = ("art", "cartoon", "photo")


def make_model(
    method: str,
    network: str = "small_cnn",
    size: int = 24,
    data: dict[str, Any] | None = None,
    **options: Any,
) -> Model:
    experiment = build_experiment(
        {
            "data": data or {"name": "folder", "root": "/home/somebody/pictures"},
            "network": {"name": network, "image_size": size},
            "method": {"name": method, **options},
            "steps": 1,
        }
    )
    built = build_method(experiment, Task(CLASSES, DOMAINS)).eval()
    spread(built)
    return Model(built, experiment, "# The card\n", "cpu")


def spread(method: Method) -> None:
    """Classifiers start near zero, where every answer is the same, and masks start alike: now
    scores of different pictures differ by about one."""
    torch.manual_seed(7)
    size = method.network.image_size
    images = torch.randn(16, 3, 1, 1) + torch.randn(16, 3, size, size)
    seen: dict[nn.Module, Tensor] = {}
    with torch.no_grad():
        for name, tensor in method.named_parameters():
            if name.startswith("logits"):
                tensor.normal_(std=2)
        for layer in method.modules():
            if isinstance(layer, nn.Linear) and layer.out_features == len(CLASSES):
                layer.register_forward_hook(lambda each, _, scores: seen.update({each: scores}))
        method.opinions(images) if isinstance(method, DomainAware) else method.predict(images)
        for layer, scores in seen.items():
            assert isinstance(layer, nn.Linear)
            factor = 1 / scores.std(dim=0)
            layer.weight.mul_(factor[:, None])
            layer.bias.sub_(scores.mean(dim=0)).mul_(factor)
            layer._forward_hooks.clear()


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
