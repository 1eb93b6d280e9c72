"""The contract of a method: its loss, its prediction, and what it may declare besides.

`kinds.py` extends it for methods that predict by domain, train in two phases or look at all images
first; `building_blocks.py` holds the mathematics that methods share.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
from torch import Tensor, nn

from unseen.config import MethodSettings
from unseen.data.batch import DomainBatch, Task
from unseen.networks.stages import Network

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
