"""Weight averaging: which steps of a run make up the model that is measured and saved."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from unseen import across_devices
from unseen.config import AveragingSettings
from unseen.training.averaging.mean import RunningMean, Tensors


class Average(ABC):
    """Of the weights of a run in progress."""

    def __init__(self, live: Tensors, settings: AveragingSettings) -> None:
        self.live = live
        self.settings = settings

    @property
    @abstractmethod
    def model(self) -> RunningMean | None:
        """What counts at this moment; None where that is still the weights themselves."""

    @property
    def steps(self) -> int:
        """How many the model is made of; 0 where it is the weights themselves."""
        return self.model.count if self.model else 0

    @abstractmethod
    def after_step(self, step: int) -> None:
        """The weights have changed; `step` steps are done."""

    @abstractmethod
    def numbers(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the means, as plain data."""

    @abstractmethod
    def means(self) -> dict[str, RunningMean]:
        """All that a checkpoint keeps, by name."""

    @abstractmethod
    def restore(self, numbers: Mapping[str, Any], tensors: Tensors) -> None:
        """The opposite of `numbers` and `tensors`."""

    def tensors(self) -> dict[str, Tensor]:
        """Those of all means, named `MEAN.TENSOR`."""
        return {
            f"{part}.{name}": tensor
            for part, mean in self.means().items()
            for name, tensor in mean.values.items()
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the method has the averaged weights; afterwards its own ones, bit for bit."""
        if self.model is None:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in self.live.items()}
        self.take_over()
        try:
            yield
        finally:
            _copy(own, self.live)

    def take_over(self) -> None:
        """The method has the averaged weights from now on; on all devices those of the first one,
        which alone saves them: batch norm sees other images on each."""
        if self.model is not None:
            for name, value in self.model.values.items():
                if not isinstance(self.live[name], nn.Parameter):
                    across_devices.as_first(value)
            _copy(self.model.values, self.live)


class StepAverage(Average):
    """`mean` and `ema`: of every step after the first ones."""

    def __init__(self, live: Tensors, settings: AveragingSettings, skipped: float) -> None:
        """`skipped`: as many steps are left out."""
        super().__init__(live, settings)
        self._skipped = skipped
        self._decay = settings.decay if settings.name == "ema" else 1.0
        self._mean = RunningMean(live)

    @property
    def model(self) -> RunningMean | None:
        return self._mean if self._mean.count else None

    def after_step(self, step: int) -> None:
        if step > self._skipped:
            self._mean.add(self._decay)

    def numbers(self) -> dict[str, Any]:
        return {"steps": self._mean.count}

    def means(self) -> dict[str, RunningMean]:
        return {"mean": self._mean}

    def restore(self, numbers: Mapping[str, Any], tensors: Tensors) -> None:
        self._mean.restore(part_of(tensors, "mean"), numbers["steps"])


def part_of(tensors: Tensors, part: str) -> dict[str, Tensor]:
    """Tensors of one mean, from all that a checkpoint has."""
    start = f"{part}."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


@torch.no_grad()
def _copy(values: Tensors, to: Tensors) -> None:
    lists = (list(to.values()), list(values.values()))
    torch._foreach_copy_(*lists)  # pyright: ignore[reportPrivateImportUsage]
