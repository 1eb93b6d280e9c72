"""Settings of how weights learn: optimizer, schedule of its rates, average over steps. No torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from unseen.marks import NEUTRAL_AT_DEFAULT, Settings
from unseen.search import LogUniform


class OptimizerSettings(Settings):
    name: Literal["adam", "adamw", "sgd"] = "adam"
    """The algorithm."""
    lr: Annotated[float, LogUniform(1e-5, 3e-4)] = Field(default=1e-4, gt=0)
    """Learning rate, before the schedule."""
    weight_decay: Annotated[float, LogUniform(1e-6, 1e-2)] = Field(default=0.0, ge=0)
    """L2 penalty on the weights (decoupled with `adamw`)."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum, for SGD."""
    new_layers_lr_factor: float = Field(default=1.0, gt=0)
    """Multiplies `lr` for layers that did not come with pretrained weights."""
    layer_decay: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=1.0, gt=0, le=1)
    """Multiplies `lr` once more for each stage (with weights) that is further from the network's
    last one. Rates that a method sets for its own parameters stay as they are."""

    @model_validator(mode="after")
    def _check(self) -> "OptimizerSettings":
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class ScheduleSettings(Settings):
    name: Literal["constant", "exponential", "inverse", "cosine", "flat"] = "constant"
    """constant; exponential: gamma^t; inverse: (1 + gamma·t)^-power; cosine: to zero; flat: up to
    `decay_from` constant, then a cosine to zero."""
    gamma: float = Field(default=0.99, gt=0)
    """Of `exponential` and `inverse`."""
    power: float = Field(default=0.75, gt=0)
    """Of `inverse`."""
    unit: Literal["step", "epoch", "run"] = "epoch"
    """What t counts: steps, finished epochs, or the share of the whole run (0 to 1)."""
    warmup: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, lt=1)
    """Share of the run over which the rate rises in a straight line; under every schedule."""
    decay_from: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=1.0, ge=0, le=1)
    """Of `flat`: share of the run after which the rate falls; 1: never."""

    @model_validator(mode="after")
    def _check(self) -> "ScheduleSettings":
        if self.name == "flat" and self.warmup > self.decay_from:
            raise ValueError("decay_from lies before the end of warmup; the rate never gets up")
        return self


class AveragingSettings(Settings):
    """The model that counts is an average of the weights at many steps: it is validated, chosen,
    saved and exported in the place of the weights themselves. Keep the learning rate up over the
    averaged part (`schedule.name=flat`)."""

    name: Literal["none", "mean", "ema", "swad"] = "none"
    """none; mean: of all steps from `start` on; ema: the same, where older steps fade by `decay`;
    swad: mean of the steps in which the validation loss is low (NeurIPS 2021)."""
    start: float = Field(default=0.25, ge=0, lt=1)
    """Of `mean` and `ema`: share of the run after which they begin (where a method has two phases,
    share of the second one)."""
    decay: float = Field(default=0.99, gt=0, lt=1)
    """Of `ema`: a step counts this much less than the next one."""
    valley_start: int = Field(default=3, ge=1)
    """Of `swad`: it begins at an evaluation with the lowest loss of so many, itself and the next
    ones; the paper's N_s."""
    valley_end: int = Field(default=6, ge=1)
    """Of `swad`: it ends before so many evaluations in a row whose loss is too high; the paper's
    N_e."""
    valley_rise: float = Field(default=0.3, ge=0)
    """Of `swad`: too high is a loss above 1 + this times the mean of those at the start; the
    paper's r."""
