"""Optimizers and learning-rate schedules, from settings: `torch.optim` for one run, and the same
updates for many at once, whose parameters have a first axis of runs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unseen.methods.base import Method, ParameterGroup
from unseen.networks.stages import stage_distances
from unseen.settings.experiment import OptimizerSettings, ScheduleSettings

_FUSED_DEVICES = {"cpu", "cuda", "mps"}


def build_optimizer(
    method: Method, settings: OptimizerSettings, fused: bool = True
) -> torch.optim.Optimizer:
    """Returns the optimizer: the method's own groups first, then new layers, then everything
    else. `fused`: one kernel updates all parameters, where there is one."""
    groups = complete_groups(method, settings)
    parameters = [p for group in groups for p in group["params"]]
    fused = fused and all(p.device.type in _FUSED_DEVICES for p in parameters)
    if settings.name == "sgd":
        momentum, nesterov = settings.momentum, settings.nesterov
        sgd = torch.optim.SGD(groups, settings.lr, momentum, nesterov=nesterov, fused=fused)
        for parameter in parameters if momentum else ():
            # fused, it wants all of them at once, also of those that learn in a later phase only
            sgd.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return sgd
    kind = torch.optim.AdamW if settings.name == "adamw" else torch.optim.Adam
    return kind(groups, settings.lr, fused=fused)


def complete_groups(method: Method, settings: OptimizerSettings) -> list[dict[str, Any]]:
    """Returns all parameters that learn, each in one group, with rates that were not given filled
    in."""
    taken: set[nn.Parameter] = set()
    distances = stage_distances(method, method.network) if settings.layer_decay < 1 else {}
    found: list[dict[str, Any]] = []

    def add(params: list[nn.Parameter], lr: float, group: ParameterGroup) -> None:
        decay, scheduled = group.get("weight_decay"), group.get("scheduled", True)
        decay = settings.weight_decay if decay is None else decay
        rates = {"lr": lr, "initial_lr": lr, "weight_decay": decay, "scheduled": scheduled}
        found.append({"params": params, **rates})

    for group in [*method.parameter_groups(), ParameterGroup(params=list(method.parameters()))]:
        params = [p for p in group["params"] if p.requires_grad and p not in taken]
        taken.update(params)
        lr = group.get("lr")
        if params and lr is not None:
            add(params, lr, group)
            continue
        lr = settings.lr * (settings.new_layers_lr_factor if group.get("new") else 1.0)
        for distance in sorted({distances.get(p, 0) for p in params}, reverse=True):
            own = [p for p in params if distances.get(p, 0) == distance]
            add(own, lr * settings.layer_decay**distance, group)
    return found


def groups_by_name(method: Method, settings: OptimizerSettings) -> dict[str, dict[str, Any]]:
    """Returns the group of each parameter that learns, the recorded one last."""
    names = {parameter: name for name, parameter in method.named_parameters()}
    return {names[p]: group for group in complete_groups(method, settings) for p in group["params"]}


def schedule_factor(
    settings: ScheduleSettings, step: int, steps: int, steps_per_epoch: int
) -> float:
    """Returns what all learning rates are multiplied with at a step: a pure function of it."""
    warm_up = min(1.0, (step + 1) / (settings.warmup * steps)) if settings.warmup else 1.0
    t = {"step": step, "epoch": step // steps_per_epoch, "run": step / steps}[settings.unit]
    if settings.name == "exponential":
        return warm_up * settings.gamma**t
    if settings.name == "inverse":
        return warm_up * (1 + settings.gamma * t) ** -settings.power
    if settings.name == "constant":
        return warm_up
    if settings.name == "cosine":
        return warm_up * 0.5 * (1 + math.cos(math.pi * step / steps))
    falls = settings.decay_from * steps
    t = (step - falls) / (steps - falls) if step > falls else 0.0
    return warm_up * 0.5 * (1 + math.cos(math.pi * t))


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets the rate of every group that follows the schedule to a multiple of its first one."""
    for group in optimizer.param_groups:
        if group["scheduled"]:
            group["lr"] = group["initial_lr"] * factor


BETAS = (0.9, 0.999)
EPSILON = 1e-8
_CHUNK = 2**18
"""Numbers of a parameter that are updated in one go: all that an update touches stays in cache."""


class StackedOptimizer:
    """Updates parameters `[runs, ...]` in place."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        groups: Sequence[Mapping[str, Mapping[str, Any]]],
        settings: Sequence[OptimizerSettings],
    ) -> None:
        """`groups`: of each run by parameter. They agree in what is scheduled, `settings` in the
        kind of optimizer and in nesterov."""
        self._parameters, self._settings = parameters, settings[0]
        self._update: Callable[..., None] = {"sgd": _sgd}.get(settings[0].name, _adam)

        def per_run(numbers: Iterable[float]) -> Tensor:
            return torch.tensor(list(numbers), dtype=torch.float64)

        by_run = {name: [run[name] for run in groups] for name in parameters}
        self._scheduled = {name: own[0]["scheduled"] for name, own in by_run.items()}
        self._lr = {name: per_run(each["lr"] for each in own) for name, own in by_run.items()}
        self._decay = {
            n: per_run(each["weight_decay"] for each in own) for n, own in by_run.items()
        }
        self._momentum = per_run(each.momentum for each in settings)
        number = 1 if self._settings.name == "sgd" else 2
        self._memory = {
            name: [torch.zeros_like(parameter) for _ in range(number)]
            for name, parameter in parameters.items()
        }
        self._steps = 0

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], factors: Tensor) -> None:
        """`factors` `[runs]`: those of the runs' schedules. Gradients may be overwritten."""
        self._steps += 1
        for name, parameter in self._parameters.items():
            lr = self._lr[name] * (factors if self._scheduled[name] else 1.0)
            decay = self._decay[name]
            numbers = [lr, decay, 1 - lr * decay, self._momentum]
            spread = [_spread(each, parameter) for each in numbers]
            tensors = [parameter, gradients[name], *self._memory[name]]
            for part in _parts(parameter):
                own = [tensor[part] for tensor in (*tensors, *spread)]
                self._update(own, self._settings, self._steps, bool(decay.any()))


def clip(gradients: Mapping[str, Tensor], largest: Tensor) -> None:
    """Clips as `clip_grad_norm_` does, in place: no run's gradient is longer than its own
    `largest`."""
    norms = [gradient.flatten(1).norm(dim=1) for gradient in gradients.values()]
    total = torch.stack(norms, dim=1).norm(dim=1)
    factors = (largest.to(total) / (total + 1e-6)).clamp(max=1.0)  # as torch has it
    for gradient in gradients.values():
        gradient.mul_(_spread(factors, gradient))


def _adam(own: list[Tensor], settings: OptimizerSettings, step: int, decays: bool) -> None:
    parameter, gradient, mean, square, lr, decay, kept, _ = own
    if decays and settings.name == "adamw":
        parameter.mul_(kept)
    elif decays:
        gradient = gradient.addcmul(parameter, decay)
    first, second = BETAS
    mean.lerp_(gradient, 1 - first)
    square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    size = square.sqrt().mul_((1 - second**step) ** -0.5).add_(EPSILON)
    parameter.addcmul_(torch.div(mean, size, out=size), lr, value=-1 / (1 - first**step))


def _sgd(own: list[Tensor], settings: OptimizerSettings, step: int, decays: bool) -> None:
    parameter, gradient, velocity, lr, decay, _, momentum = own
    if decays:
        gradient = gradient.addcmul(parameter, decay)
    velocity.mul_(momentum).add_(gradient)
    moved = gradient.addcmul(velocity, momentum) if settings.nesterov else velocity
    parameter.addcmul_(moved, lr, value=-1)


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """Returns `[runs]` in a shape that multiplies `[runs, ...]`; rounded first, not all devices
    know double precision."""
    return values.to(like.dtype).to(like.device).view(-1, *[1] * (like.ndim - 1))


def _parts(parameter: Tensor) -> list[slice]:
    """Returns neighbouring runs, few enough to stay in cache."""
    runs = len(parameter)
    each = max(1, _CHUNK * runs // max(1, parameter.numel()))
    return [slice(start, start + each) for start in range(0, runs, each)]
