"""Optimizers and learning-rate schedules, from settings."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from unseen.methods.base import Method, ParameterGroup
from unseen.networks.stages import stage_distances
from unseen.settings.experiment import OptimizerSettings, ScheduleSettings

_FUSED_DEVICES = {"cpu", "cuda", "mps"}


def build_optimizer(method: Method, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """The method's own groups first, then new layers, then everything else."""
    groups: list[dict[str, Any]] = [
        {**group._asdict(), "initial_lr": group.lr} for group in complete_groups(method, settings)
    ]
    if settings.name == "sgd":  # fused, it fails on parameters that start to learn in a later phase
        return torch.optim.SGD(groups, settings.lr, settings.momentum, nesterov=settings.nesterov)
    fused = all(p.device.type in _FUSED_DEVICES for g in groups for p in g["params"])
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, settings.lr, fused=fused)


class CompleteGroup(NamedTuple):
    """Parameters that share their rates."""

    params: list[nn.Parameter]
    lr: float
    weight_decay: float
    scheduled: bool


def complete_groups(method: Method, settings: OptimizerSettings) -> list[CompleteGroup]:
    """All parameters that learn, each in one group, with rates that were not given filled in."""
    taken: set[nn.Parameter] = set()
    distances = stage_distances(method, method.network) if settings.layer_decay < 1 else {}

    def complete(group: ParameterGroup) -> Iterator[CompleteGroup]:
        params = [p for p in group["params"] if p.requires_grad and p not in taken]
        taken.update(params)
        lr, decay = group.get("lr"), group.get("weight_decay")
        rest = (settings.weight_decay if decay is None else decay, group.get("scheduled", True))
        if lr is not None:
            yield CompleteGroup(params, lr, *rest)
            return
        lr = settings.lr * (settings.new_layers_lr_factor if group.get("new") else 1.0)
        for distance in sorted({distances.get(p, 0) for p in params}, reverse=True):
            own = [p for p in params if distances.get(p, 0) == distance]
            yield CompleteGroup(own, lr * settings.layer_decay**distance, *rest)

    groups = [*method.parameter_groups(), ParameterGroup(params=list(method.parameters()))]
    return [each for group in groups for each in complete(group) if each.params]


def schedule_factor(
    settings: ScheduleSettings, step: int, steps: int, steps_per_epoch: int
) -> float:
    """What all learning rates are multiplied with at a step: a pure function of it."""
    warm_up = min(1.0, (step + 1) / (settings.warmup * steps)) if settings.warmup else 1.0
    return warm_up * _factor(settings, step, steps, steps_per_epoch)


def _factor(settings: ScheduleSettings, step: int, steps: int, steps_per_epoch: int) -> float:
    if settings.name == "constant":
        return 1.0
    if settings.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * step / steps))
    if settings.name == "flat":
        falls = settings.decay_from * steps
        t = (step - falls) / (steps - falls) if step > falls else 0.0
        return 0.5 * (1 + math.cos(math.pi * t))
    t = {"step": step, "epoch": step // steps_per_epoch, "run": step / steps}[settings.unit]
    if settings.name == "exponential":
        return settings.gamma**t
    return (1 + settings.gamma * t) ** -settings.power


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """The rate of every group that follows the schedule, as a multiple of the one it was built
    with."""
    for group in optimizer.param_groups:
        if group["scheduled"]:
            group["lr"] = group["initial_lr"] * factor
