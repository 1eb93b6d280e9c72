"""Kinds of methods with a larger contract: by domain, with aligned features, in two phases, after a
survey."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.methods.shared import (
    check_domains,
    classification,
    frozen_features,
    in_full_precision,
    inactive,
)
from unseen.networks.stages import Network
from unseen.settings.experiment import MethodSettings

Losses = dict[str, Tensor]


class Progress(NamedTuple):
    """Where a run is. Phases and schedules derive from it, so a resume lands in the right one."""

    step: int
    steps: int

    @property
    def ratio(self) -> float:
        return self.step / self.steps


class ParameterGroup(TypedDict):
    """Parameters that share a rate; what is missing or None is the optimizer's setting."""

    params: list[nn.Parameter]
    lr: NotRequired[float | None]
    weight_decay: NotRequired[float | None]
    new: NotRequired[bool]
    """Not pretrained: the optimizer's rate times its `new_layers_lr_factor`."""
    scheduled: NotRequired[bool]
    """Whether the rate follows the schedule of the run; missing: it does."""


class Traits(NamedTuple):
    """Facts about a method that others need to know before they run it."""

    target_images: Literal["unused", "optional", "required", "surveyed"] = "unused"
    """Whether batches hold unlabelled target images where the setting is adaptation; `surveyed`:
    the method needs them, but only its survey looks at them."""
    needs_pixels: bool = False
    """It looks at the images and cannot train from stored features (`network.freeze_until`)."""
    stackable: bool = False
    """`loss` and `predict` work under `torch.func.vmap` on stored features of balanced batches, and
    use numbers from `config` in sums and products only: many runs then train as one."""
    training_only: tuple[str, ...] = ()
    """Attributes that prediction does not need: checkpoints have them, models do not."""


class Method(nn.Module, ABC):
    """A network, a loss and a prediction.

    1. One forward, one backward a step: a method never calls `backward` or steps an optimizer. One
       that builds its own gradient returns `with_gradients(params, grads)` as its loss.
    2. Every trainable parameter takes part in every loss (`inactive` helps).
    3. State lives in parameters and buffers; phases and schedules derive from `progress`.
    4. Random draws come from `batch.keys` and `batch.step_key`, so that they survive a resume and
       any number of devices. A loss that is not a mean over images uses `across_devices`.
    5. `predict` can be traced: no Python branch on the value of a tensor.
    """

    class Config(MethodSettings):
        """Hyper-parameters, each with its default, limits, search range and one line of text."""

    traits: ClassVar[Traits] = Traits()
    remarks: tuple[str, ...] = ()
    """What the user should know about this run before its first step."""
    preparing: bool = False
    """Whether the last step was one of a phase whose weights are no model yet (see `TwoPhases`)."""

    def __init__(self, network: Network, task: Task, config: MethodSettings) -> None:
        super().__init__()
        self.network = network
        self.task = task
        self.config = config

    @abstractmethod
    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """A dict of scalars; "loss" is minimised, the others are recorded."""

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        """Class scores (logits); `domain` only where the domain of all images is known."""
        return self.network(images)

    def forward(self, batch: DomainBatch, progress: Progress) -> Losses:
        return self.loss(batch, progress)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Groups with their own rates; parameters in no group get the optimizer's settings."""
        return [new_layers(*(self.network.stage(name) for name in self.network.new_stages))]

    def edit_gradients(self, progress: Progress) -> None:
        """After backward, before clipping and the update; gradients are equal on all devices."""

    def after_update(self, progress: Progress) -> None:
        """After the optimizer's step."""

    def statistics(self) -> dict[str, Any]:
        """What is worth recording at each evaluation besides losses, as plain data."""
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        """What the report draws besides curves; kept as arrays.npz when the run is done."""
        return {}


def new_layers(*layers: nn.Module) -> ParameterGroup:
    """The group of layers that did not come with pretrained weights."""
    return {"params": [p for layer in layers for p in layer.parameters()], "new": True}


class DomainAware(Method):
    """A method that answers differently when it is told the domain."""

    averages_opinions: bool = True
    """Whether `predict` is the plain mean of `opinions` where the domain is unknown."""

    @abstractmethod
    def opinions(self, images: Tensor) -> Tensor:
        """Scores `[domains, images, classes]` as if each training domain were the known one."""

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        opinions = self.opinions(images)
        return opinions.mean(dim=0) if domain is None else opinions[domain]

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores for an unknown domain and all opinions; the trunk runs once where it can."""
        opinions = self.opinions(images)
        scores = opinions.mean(dim=0) if self.averages_opinions else self.predict(images)
        return scores, opinions


class AligningMethod(Method):
    """Cross-entropy, and a distance between the domains' features before the classifier."""

    class Config(Method.Config):
        penalty_weight: float = Field(default=1.0, ge=0)
        """λ, the weight of the distance between the domains' features."""

    config: Config

    def __init__(self, network: Network, task: Task, config: MethodSettings) -> None:
        super().__init__(network, task, config)
        check_domains(task, config.name, "aligns the features of training domains")
        self.remarks = frozen_features(network, network.head, "their alignment")

    @abstractmethod
    def distance(self, rows: Tensor, domains: Tensor, n_domains: int) -> Tensor:
        """Between the features `rows` of images of these domains, those of all devices."""

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network.run(batch.images, until=self.network.head)
        scores = self.network.run(features, since=self.network.head)
        task, accuracy = classification(scores, batch.labels, self.task.label_smoothing)
        rows = across_devices.gather(features.flatten(1).float())
        with in_full_precision(rows):
            penalty = self.distance(rows, across_devices.gather(batch.domains), batch.n_domains)
        return {
            "loss": task + self.config.penalty_weight * penalty,
            "task": task.detach(),
            "penalty": penalty.detach(),
            "accuracy": accuracy,
        }


class TwoPhases(Method):
    """A method whose first phase prepares what the second one trains.

    Weights of the first phase are never chosen as the model. `predict` looks at `preparing` to
    answer in both; the phase is saved with the weights.
    """

    preparing = True

    @abstractmethod
    def boundary(self, steps: int) -> int:
        """The first step of the second phase; the last step of a run always belongs to it."""

    @abstractmethod
    def first_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """The loss of the first phase."""

    @abstractmethod
    def second_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """The loss of the second phase."""

    @abstractmethod
    def idle_parameters(self) -> Iterable[nn.Parameter]:
        """What the current phase does not train."""

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        self.preparing = progress.step < self.boundary(progress.steps)
        phase = self.first_loss if self.preparing else self.second_loss
        losses = phase(batch, progress)
        return losses | {"loss": losses["loss"] + inactive(self.idle_parameters())}

    def get_extra_state(self) -> Tensor:
        """Saved and loaded by torch with the parameters."""
        return torch.tensor(self.preparing)

    def set_extra_state(self, state: Tensor) -> None:
        self.preparing = bool(state)

    def edit_gradients(self, progress: Progress) -> None:
        """Without a gradient the optimizer leaves a parameter alone, its weight decay included."""
        for parameter in self.idle_parameters():
            parameter.grad = None


class TrainingImages(NamedTuple):
    """All training images once, as they are, in batches."""

    source: Callable[[], Iterator[DomainBatch]]
    target: Callable[[], Iterator[Tensor]]
    """Images of the target domain, in adaptation; no labels."""


class SurveyingMethod(Method):
    """A method that looks at all training images before the first step."""

    @abstractmethod
    def survey(self, images: TrainingImages) -> dict[str, Tensor]:
        """What can be learned from all images at once.

        It is computed once, kept with the run, and handed to `use_survey` now and at each resume.
        """

    @abstractmethod
    def use_survey(self, found: Mapping[str, Tensor]) -> None:
        """Take over what `survey` found; it may set `remarks`."""
