"""SWAD: Domain Generalization by Seeking Flat Minima (Cha et al., NeurIPS 2021), algorithm 1.

Averaged is every step from t_s to t_e, which the validation loss of the weights themselves decides.
t_s is the first evaluation whose loss none of the next N_s − 1 is below; the loss may then rise to
1 + r times the mean of these N_s. After N_e evaluations in a row above that, t_e is the last one
before them. A run that ends first is averaged up to its last evaluation that is not above; without
a t_s, the last weights count, as in the authors' code.
"""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from unseen.config import AveragingSettings
from unseen.training.averaging.average import Average, part_of
from unseen.training.averaging.mean import RunningMean, Tensors


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

    @property
    def model(self) -> RunningMean | None:
        return self._settled if self._settled.count else None

    @property
    def ended(self) -> bool:
        """Whether t_e is known: nothing changes the model any more."""
        return self._above >= self.settings.valley_end

    def after_step(self, step: int) -> None:
        if not self.ended:
            self._steps.add()

    def judge(self, loss: float) -> None:
        """At an evaluation: the validation loss of the weights as they are."""
        part, self._steps = self._steps, RunningMean(self.live)
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
        return {
            "counts": {name: mean.count for name, mean in self.means().items()},
            "losses": self._losses,
            "highest": self._highest,
            "above": self._above,
        }

    def restore(self, numbers: Mapping[str, Any], tensors: Tensors) -> None:
        self._losses = list(numbers["losses"])
        self._parts = [RunningMean(self.live) for _ in self._losses]
        self._highest, self._above = numbers["highest"], numbers["above"]
        for name, mean in self.means().items():
            mean.restore(part_of(tensors, name), numbers["counts"][name])
