"""Optimizers of many runs at once: each run moves as torch's own optimizer moves it."""

from typing import Any

import pytest
import torch
from torch import nn

from unseen.settings.experiment import OptimizerSettings
from unseen.training import optimizers
from unseen.training.optimizers import StackedOptimizer, clip

RUNS = 5
SHAPES = {"weight": (4, 3), "bias": (4,)}
LR = [1e-3, 1e-2, 0.1, 0.5, 1e-6]
DECAY = [0.0, 1e-2, 0.5, 1e-4, 0.0]


def torch_optimizer(settings: OptimizerSettings, groups: list[dict[str, Any]]) -> Any:
    if settings.name == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name](groups)


@pytest.mark.parametrize(
    "common",
    [
        {"name": "adam"},
        {"name": "adamw"},
        {"name": "sgd", "momentum": 0.0},
        {"name": "sgd"},
        {"name": "sgd", "nesterov": True},
    ],
)
@pytest.mark.parametrize("chunk", [2**18, 24])
def test_every_step_is_that_of_torch(
    common: dict[str, Any], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizers, "_CHUNK", chunk)  # 24 numbers: two runs at a time
    random = torch.Generator().manual_seed(0)
    start = {name: torch.randn(RUNS, *shape, generator=random) for name, shape in SHAPES.items()}
    stacked = {name: values.clone() for name, values in start.items()}
    settings = [
        OptimizerSettings(
            **common | ({"momentum": 0.1 * (1 + run)} if "nesterov" in common else {})
        )
        for run in range(RUNS)
    ]
    rates = [
        {
            name: {"lr": factor * LR[run], "weight_decay": DECAY[run], "scheduled": True}
            for name, factor in (("weight", 1), ("bias", 2))
        }
        for run in range(RUNS)
    ]
    ours = StackedOptimizer(stacked, rates, settings)
    theirs = []
    for run in range(RUNS):
        parameters = {name: nn.Parameter(values[run].clone()) for name, values in start.items()}
        groups = [
            {"params": [p], "lr": rates[run][name]["lr"], "weight_decay": DECAY[run]}
            for name, p in parameters.items()
        ]
        theirs.append((parameters, torch_optimizer(settings[run], groups)))
    for step in range(6):
        gradients = {
            name: torch.randn(RUNS, *shape, generator=random) for name, shape in SHAPES.items()
        }
        factors = torch.tensor([1.0, 0.5, 0.9**step, 1 / (1 + step), 1.0], dtype=torch.float64)
        for run, (parameters, optimizer) in enumerate(theirs):
            for group, rate in zip(optimizer.param_groups, rates[run].values(), strict=True):
                group["lr"] = rate["lr"] * factors[run].item()
            for name, parameter in parameters.items():
                parameter.grad = gradients[name][run].clone()
            optimizer.step()
        ours.step(gradients, factors)
        for run, (parameters, _) in enumerate(theirs):
            for name, parameter in parameters.items():
                torch.testing.assert_close(
                    stacked[name][run], parameter.detach(), atol=1e-6, rtol=1e-5
                )


def test_gradients_are_clipped_run_by_run() -> None:
    gradients = {
        "weight": torch.tensor([[[3.0, 0.0]], [[3.0, 0.0]], [[0.3, 0.0]]]),
        "bias": torch.tensor([[4.0], [4.0], [0.4]]),
    }
    expected = []
    for run, largest in enumerate([1.0, 10.0, 1.0]):
        parts = [nn.Parameter(torch.zeros_like(g[run])) for g in gradients.values()]
        for part, gradient in zip(parts, gradients.values(), strict=True):
            part.grad = gradient[run].clone()
        nn.utils.clip_grad_norm_(parts, largest)
        expected.append([part.grad for part in parts])
    clip(gradients, torch.tensor([1.0, 10.0, 1.0]))
    assert gradients["weight"][:, 0, 0].tolist() == pytest.approx([0.6, 3.0, 0.3])
    for run, parts in enumerate(expected):
        for found, part in zip(gradients.values(), parts, strict=True):
            torch.testing.assert_close(found[run], part)
