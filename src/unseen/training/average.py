"""Averages of the weights over the steps of a run: `mean`, `ema`, and SWAD.

SWAD: Domain Generalization by Seeking Flat Minima (Cha et al., NeurIPS 2021), algorithm 1.
Averaged is every step from t_s to t_e, which the validation loss of the weights themselves decides.
t_s is the first evaluation whose loss none of the next N_s − 1 is below; the loss may then rise to
1 + r times the mean of these N_s. After N_e evaluations in a row above that, t_e is the last one
before them. A run that ends first is averaged up to its last evaluation that is not above. As long
as there is no t_s, the mean of the steps since the last evaluation but one counts, as in the
authors' code.

The average starts with the weights at t_s, as in the paper, and every step weighs the same. The
authors' code starts with the steps after t_s, and there the steps between two evaluations weigh the
same together, however many they are.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from unseen import across_devices
from unseen.errors import SettingsError
from unseen.methods.base import Method, TwoPhases
from unseen.networks.layers import BATCH_NORMS
from unseen.settings.experiment import AveragingSettings, Experiment
from unseen.training.build import own_tensors
from unseen.training.checkpoints import for_prediction, part_of

Tensors = Mapping[str, Tensor]


class RunningMean:
    """Grows by the tensors as they are now, in one pass over them; nothing before the first."""

    def __init__(self, live: Tensors) -> None:
        """`live` are the tensors that change."""
        self._live = live
        self.values: dict[str, Tensor] = {}
        self.count = 0

    def add(self, decay: float = 1.0) -> None:
        """Adds the tensors as they are now. With `decay` below 1, what was added n moments ago
        counts `decay`ⁿ; weights add up to 1 from the beginning."""
        count = self.count + 1
        share = 1 / count if decay == 1 else (1 - decay) / (1 - decay**count)
        self._move(self._live if self.count else _copies(self._live), 1, share)

    def merge(self, other: "RunningMean") -> None:
        """Adds all that the other was made of, which is not used again."""
        if other.count:
            share = other.count / (self.count + other.count)
            self._move(other.values, other.count, share)

    @torch.no_grad()
    def _move(self, towards: Tensors, count: int, share: float) -> None:
        """Moves the mean a share of the way; the first tensors are the mean."""
        if self.count:
            lists = (list(self.values.values()), list(towards.values()))
            torch._foreach_lerp_(*lists, share)  # pyright: ignore[reportPrivateImportUsage]
        else:
            self.values = dict(towards)
        self.count += count

    def restore(self, values: Tensors, count: int) -> None:
        """Takes values from a file, in the order and the memory format of the live tensors."""
        self.count = count
        self.values = _copies(self._live) if count else {}
        _copy(values, self.values)


def _copies(tensors: Tensors) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def _copy(values: Tensors, to: Tensors) -> None:
    for name, tensor in to.items():
        tensor.copy_(values[name])


class Average:
    """An average of the weights of a run in progress: `mean` and `ema`, of every step after the
    first ones."""

    def __init__(self, live: Tensors, settings: AveragingSettings, skipped: float = 0) -> None:
        """`skipped`: as many steps are left out."""
        self.live, self.settings = live, settings
        self._skipped = skipped
        self._mean = RunningMean(live)

    @property
    def model(self) -> RunningMean | None:
        """The mean that counts at this moment; None where the weights themselves still do."""
        return self._mean if self._mean.count else None

    @property
    def steps(self) -> int:
        """The number of steps in the model; 0 where it is the weights themselves."""
        return self.model.count if self.model else 0

    def after_step(self, step: int) -> None:
        """The weights have changed; `step` steps are done."""
        if step > self._skipped:
            self._mean.add(self.settings.decay if self.settings.name == "ema" else 1.0)

    def means(self) -> dict[str, RunningMean]:
        """Returns all means that a checkpoint keeps, by name."""
        return {"mean": self._mean}

    def numbers(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps besides the means, as plain data."""
        return {"counts": {name: mean.count for name, mean in self.means().items()}}

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors of all means, named `MEAN.TENSOR`."""
        return {
            f"{part}.{name}": tensor
            for part, mean in self.means().items()
            for name, tensor in mean.values.items()
        }

    def restore(self, numbers: Mapping[str, Any], tensors: Tensors) -> None:
        """The opposite of `numbers` and `tensors`."""
        for name, mean in self.means().items():
            mean.restore(part_of(tensors, name), numbers["counts"][name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Gives the method the averaged weights for a while; afterwards it has its own ones, bit
        for bit. On all devices they are those of the first one, which alone saves them: batch norm
        sees other images on each."""
        if self.model is None:
            yield
            return
        own = _copies(self.live)
        for name, value in self.model.values.items():
            if not isinstance(self.live[name], nn.Parameter):
                across_devices.as_first(value)
        _copy(self.model.values, self.live)
        try:
            yield
        finally:
            _copy(own, self.live)


class ValleyAverage(Average):
    """`swad`. Each part of the run between two evaluations has a mean of its own until it is clear
    whether it counts."""

    def __init__(self, live: Tensors, settings: AveragingSettings) -> None:
        super().__init__(live, settings)
        self._steps = RunningMean(live)
        """Since the last evaluation."""
        self._parts: list[RunningMean] = []
        """Before the valley: the weights at the lowest loss, then each part since."""
        self._losses: list[float] = []
        """Those of the parts."""
        self._settled, self._waiting = RunningMean(live), RunningMean(live)
        """In the valley: what counts, and what will if the loss comes down again."""
        self._highest: float | None = None
        self._above = 0
        self._last = RunningMean(live)
        """Between the last two evaluations."""

    @property
    def model(self) -> RunningMean | None:
        found = self._settled if self._settled.count else self._last
        return found if found.count else None

    @property
    def ended(self) -> bool:
        """Whether t_e is known: nothing changes the model any more."""
        return self._above >= self.settings.valley_end

    def after_step(self, step: int) -> None:
        if not self.ended:
            self._steps.add()

    def judge(self, loss: float) -> None:
        """Takes in the validation loss of the weights as they are, at an evaluation."""
        part, self._steps = self._steps, RunningMean(self.live)
        self._last = part
        if self._highest is not None:
            self._place(part, loss)
        elif not self._losses or loss < self._losses[0]:
            now = RunningMean(self.live)
            now.add()
            self._parts, self._losses = [now], [loss]
        else:
            self._parts.append(part)
            self._losses.append(loss)
        if self._highest is None and len(self._losses) == self.settings.valley_start:
            self._highest = (1 + self.settings.valley_rise) * fmean(self._losses)
            for part, loss in zip(self._parts, self._losses, strict=True):
                self._place(part, loss)
            self._parts, self._losses = [], []

    def _place(self, part: RunningMean, loss: float) -> None:
        if self.ended:
            return
        assert self._highest is not None
        self._waiting.merge(part)
        if loss <= self._highest:
            self._settled.merge(self._waiting)
            self._above = 0
        else:
            self._above += 1
        if loss <= self._highest or self.ended:
            self._waiting = RunningMean(self.live)

    def means(self) -> dict[str, RunningMean]:
        found = {"steps": self._steps, "settled": self._settled, "waiting": self._waiting}
        return found | {f"part {number}": part for number, part in enumerate(self._parts)}

    def numbers(self) -> dict[str, Any]:
        valley = {"losses": self._losses, "highest": self._highest, "above": self._above}
        return super().numbers() | valley

    def restore(self, numbers: Mapping[str, Any], tensors: Tensors) -> None:
        self._losses = list(numbers["losses"])
        self._parts = [RunningMean(self.live) for _ in self._losses]
        self._highest, self._above = numbers["highest"], numbers["above"]
        super().restore(numbers, tensors)


def build_average(
    experiment: Experiment, method: Method, steps: int, live: Tensors | None = None
) -> Average | None:
    """Returns the average that the settings ask for; None where the weights themselves count.
    `live` are the tensors that it is of, if not those of the method."""
    settings = experiment.averaging
    if settings.name == "none":
        return None
    live = averaged_tensors(method) if live is None else live
    if settings.name == "swad":
        return ValleyAverage(live, settings)
    preparing = method.boundary(steps) if isinstance(method, TwoPhases) else 0
    return Average(live, settings, preparing + settings.start * (steps - preparing))


def averaged_tensors(method: Method) -> dict[str, Tensor]:
    """Returns what prediction needs and training changes, each tensor once: parameters that learn,
    and buffers of numbers with a fraction, such as the statistics of batch norm."""
    still = {
        id(buffer)
        for module in method.train().modules()
        if isinstance(module, BATCH_NORMS) and not module.training
        for buffer in module.buffers()
    }
    needed = for_prediction(method).keys()
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in own_tensors(method):
        changes = tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        if changes and name in needed and tensor.is_floating_point() and id(tensor) not in still:
            found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def check_averaging(experiment: Experiment, steps: int) -> None:
    """Raises where the average could never begin."""
    settings = experiment.averaging
    if settings.name != "swad":
        return
    evaluations = math.ceil(steps / experiment.evaluate_every)
    if evaluations < settings.valley_start:
        raise SettingsError(
            f"averaging.name=swad needs averaging.valley_start={settings.valley_start} evaluations "
            f"before it begins, but {steps} steps have {evaluations}; set evaluate_every="
            f"{max(1, steps // 20)}, say"
        )
