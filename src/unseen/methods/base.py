"""The contract of a method. One file per method stands on this page and on nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.config import MethodSettings
from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
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
    """Parameters that share a rate; what is left out comes from the optimizer's settings."""

    params: list[nn.Parameter]
    lr: NotRequired[float]
    weight_decay: NotRequired[float]


class TrainingImages(NamedTuple):
    """All training images once, as they are, in batches: for a look before the first step."""

    source: Callable[[], Iterator[DomainBatch]]
    target: Callable[[], Iterator[Tensor]]
    """Images of the target domain, in adaptation; no labels."""


class Method(nn.Module, ABC):
    """A network, a loss and a prediction.

    1. One forward, one backward a step: a method never calls `backward` or steps an optimizer. One
       that builds its own gradient returns `with_gradients(params, grads)` as its loss.
    2. Every trainable parameter takes part in every loss.
    3. State lives in parameters and buffers.
    4. What `edit_gradients` reads is equal on all devices, or named in `synced`.
    5. Random draws come from `batch.keys` and `batch.step_key`, so that they survive a resume and
       any number of devices. A loss that is no mean over images uses `across_devices`.
    """

    class Config(MethodSettings):
        pass

    uses_domain: ClassVar[bool] = False
    """`predict` answers differently when it is told the domain, and there are `opinions`."""
    target_images: ClassVar[Literal["unused", "optional", "required", "surveyed"]] = "unused"
    """Whether batches hold unlabelled target images, where the setting is adaptation; `surveyed`:
    the method cannot do without them, but only `survey` looks at them."""
    needs_pixels: ClassVar[bool] = False
    """Cannot train from stored features (see `network.freeze_until`): it looks at the images."""
    stackable: ClassVar[bool] = False
    """`loss` and `predict` work under `torch.func.vmap` on stored features of balanced batches, and
    use numbers from `config` in sums and products only: many runs then train as one."""
    training_only: ClassVar[tuple[str, ...]] = ()
    """Parts (attributes) that prediction does not need: checkpoints have them, models do not."""
    synced: ClassVar[tuple[str, ...]] = ()
    """Buffers that are averaged over devices after backward, before `edit_gradients`."""

    def __init__(self, network: Network, task: Task, config: MethodSettings) -> None:
        super().__init__()
        self.network = network
        self.task = task
        self.config = config

    @abstractmethod
    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """A dict of scalars; "loss" is minimised, the others are recorded."""

    @abstractmethod
    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        """Class scores (logits); `domain` only where the domain of all images is known."""

    def opinions(self, images: Tensor) -> Tensor:
        """Scores `[domains, images, classes]` as if each training domain were the known one."""
        return torch.stack([self.predict(images, d) for d in range(len(self.task.domains))])

    @property
    def averages_opinions(self) -> bool:
        """Whether `predict` is the mean of `opinions` where the domain is unknown."""
        return False

    def forward(self, batch: DomainBatch, progress: Progress) -> Losses:
        return self.loss(batch, progress)

    def survey(self, images: TrainingImages) -> dict[str, Tensor]:
        """Before the first step: what can be learned from all training images at once.

        It is computed once, kept with the run, and handed to `remember` now and at each resume.
        """
        return {}

    def remember(self, found: Mapping[str, Tensor]) -> None:
        """Take over what `survey` found."""

    def remarks(self) -> tuple[str, ...]:
        """What the user should know about this run, once the survey is done."""
        return ()

    def parameter_groups(self) -> list[ParameterGroup]:
        """Groups with their own rates; parameters in no group get the optimizer's settings."""
        return []

    def new_layers(self) -> Iterable[nn.Module]:
        """Layers that did not come with pretrained weights (see `new_layers_lr_factor`)."""
        return [self.network.stage(name) for name in self.network.new_stages]

    def edit_gradients(self, progress: Progress) -> None:
        """After backward, before clipping and the update."""

    def after_update(self, progress: Progress) -> None:
        """After the optimizer's step."""

    def may_be_chosen(self, progress: Progress) -> bool:
        """Whether the weights at this point are a candidate; not in a phase that only prepares."""
        return True

    def arrays(self) -> dict[str, np.ndarray]:
        """What the report draws besides curves; kept as arrays.npz when the run is done."""
        return {}

    def statistics(self) -> dict[str, Any]:
        """What is worth recording at each evaluation besides losses, as plain data."""
        return {}


def classification(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy, and the share of right answers."""
    accuracy = (scores.detach().argmax(dim=1) == labels).float().mean()
    return functional.cross_entropy(scores, labels), accuracy


def check_domains(task: Task, method: str, purpose: str) -> None:
    """Refuse a single training domain where the method lives on the difference between two."""
    if len(task.domains) < 2:
        raise SettingsError(
            f"{method} {purpose}: it needs two training domains or more, found one "
            f"({', '.join(task.domains)}); train on more domains, or use method.name=aggregate"
        )


def joint_images(batch: DomainBatch, task: Task) -> tuple[Tensor, Tensor]:
    """All images of a step, for one pass (batch norm then sees both sides), and the group of each:
    in adaptation source 0 and target 1, else its domain."""
    if task.target is None:
        return batch.images, batch.domains
    assert batch.target is not None
    sides = (torch.zeros_like(batch.domains), batch.domains.new_ones(len(batch.target)))
    return torch.cat([batch.images, batch.target]), torch.cat(sides)


def gradient_step(
    loss: Tensor, weights: Mapping[str, Tensor], lr: float, differentiable: bool
) -> dict[str, Tensor]:
    """Weights one plain step down the loss of the whole batch, also where devices share it.

    Gradients can be taken through the result; `differentiable`: through the step's own, too.
    """
    values = list(weights.values())
    found = torch.autograd.grad(
        loss, values, retain_graph=True, create_graph=differentiable, materialize_grads=True
    )
    # one exchange for all: its counterpart in backward comes before any gradient is ready
    gradient = across_devices.mean(torch.cat([g.flatten() for g in found]))
    parts = gradient.split([value.numel() for value in values])
    return {
        name: value - lr * part.view(value.shape)
        for (name, value), part in zip(weights.items(), parts, strict=True)
    }


def with_gradients(params: list[nn.Parameter], grads: list[Tensor]) -> Tensor:
    """A scalar whose gradient by `params` is exactly `grads`; its value is zero."""
    terms = [((p - p.detach()) * g.detach()).sum() for p, g in zip(params, grads, strict=True)]
    return torch.stack(terms).sum()
