"""The contract of a method: settings, a loss and a prediction.

Nearly every method is a `Method` and nothing more. Training asks for more where a method answers
differently for each domain (`DomainAware`), changes its weights' meaning on the way (`TwoPhases`)
or has to look at all images before its first step (`DatasetPassMethod`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.shared import accuracy, frozen_features, inactive
from unseen.networks.stages import Network, Tail
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

    target_images: Literal["unused", "optional", "required", "dataset_pass"] = "unused"
    """Whether batches hold unlabelled target images where the setting is adaptation;
    `dataset_pass`: only the pass over the dataset before the first step looks at them."""
    needs_pixels: bool = False
    """It looks at the images and cannot train from stored features (`network.freeze_until`)."""
    stackable: bool = False
    """`loss` and `predict` work under `torch.func.vmap` on stored features of balanced batches, and
    use numbers from `config` in sums and products only: many runs then train as one."""
    compares_domains: str = ""
    """What it does with several training domains, as a message says it after the method's name: a
    single one is refused. Empty: one domain will do."""
    acts_on_features: str = ""
    """What has no effect where nothing before the classifier learns, as a remark says it."""
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

    Config = MethodSettings
    """Hyper-parameters, each with its default, limits, search range and one line of text."""

    traits: ClassVar[Traits] = Traits()
    remarks: tuple[str, ...] = ()
    """What the user should know about this run before its first step."""
    preparing: bool = False
    """Whether the last step was one of a phase whose weights are no model yet (see `TwoPhases`)."""

    def __init__(self, network: Network, task: Task, config: MethodSettings) -> None:
        super().__init__()
        if self.traits.compares_domains and task.target is None and len(task.domains) < 2:
            raise SettingsError(
                f"{config.name} {self.traits.compares_domains}: it needs two training domains or "
                f"more, found one ({', '.join(task.domains)}); train on more domains, or use "
                "method.name=aggregate"
            )
        if self.traits.acts_on_features:
            self.remarks = frozen_features(network, network.head, self.traits.acts_on_features)
        self.network = network
        self.task = task
        self.config = config

    @abstractmethod
    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns a dict of scalars; "loss" is minimised, the others are recorded."""

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        """Returns class scores (logits); `domain` only where that of all images is known."""
        return self.network(images)

    def forward(self, batch: DomainBatch, progress: Progress) -> Losses:
        return self.loss(batch, progress)

    def classification(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean cross-entropy with class labels, smoothed as the task asks, and the
        share of correct predictions."""
        return self.cross_entropy(scores, labels), accuracy(scores, labels)

    def cross_entropy(
        self, scores: Tensor, labels: Tensor, reduction: Literal["mean", "sum", "none"] = "mean"
    ) -> Tensor:
        """Returns the cross-entropy with class labels, smoothed as the task asks."""
        return functional.cross_entropy(
            scores, labels, reduction=reduction, label_smoothing=self.task.label_smoothing
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        """Returns groups with rates of their own, the first that has a parameter counts; here all
        layers that are new. All other parameters get the optimizer's rates."""
        new = [layer for part in self.children() for layer in _new_layers(part)]
        return [ParameterGroup(params=[p for m in new for p in m.parameters()], new=True)]

    def edit_gradients(self, progress: Progress) -> None:
        """Runs after backward, before clipping and the update; all devices have the same
        gradients."""

    def after_update(self, progress: Progress) -> None:
        """Runs after the optimizer's step."""

    def statistics(self) -> dict[str, Any]:
        """Returns what is recorded at each evaluation besides losses, as plain data."""
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what the report draws besides curves; kept as arrays.npz when the run is done."""
        return {}


def _new_layers(part: nn.Module) -> list[nn.Module]:
    """Returns what did not come with pretrained weights: of the network and of copies of its stages
    those that are new, of other parts of a method everything."""
    if isinstance(part, Network | Tail):
        return part.new_layers()
    if isinstance(part, nn.ModuleList):
        return [layer for each in part for layer in _new_layers(each)]
    return [part]


class DomainAware(Method):
    """A method that answers differently when it is told the domain."""

    @abstractmethod
    def opinions(self, images: Tensor) -> Tensor:
        """Returns scores `[domains, images, classes]`, as if each training domain were known."""

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns scores for an unknown domain, here the mean of all opinions, and the opinions
        themselves. The trunk runs once."""
        opinions = self.opinions(images)
        return opinions.mean(dim=0), opinions

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None:
            return self.scores_and_opinions(images)[0]
        return self.opinions(images)[domain]


class TwoPhases(Method):
    """A method whose first phase prepares what the second one trains.

    Weights of the first phase are never chosen as the model. `predict` looks at `preparing` to
    answer in both; the phase is saved with the weights.
    """

    preparing = True

    @abstractmethod
    def boundary(self, steps: int) -> int:
        """Returns the first step of the second phase; the last step of a run belongs to it."""

    @abstractmethod
    def first_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns the losses of the first phase."""

    @abstractmethod
    def second_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns the losses of the second phase."""

    @abstractmethod
    def idle_parameters(self) -> Iterable[nn.Parameter]:
        """Returns what the current phase does not train."""

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
        """Removes the gradients of idle parameters: the optimizer then leaves them alone, their
        weight decay included."""
        for parameter in self.idle_parameters():
            parameter.grad = None


class TrainingImages(NamedTuple):
    """All training images once, as they are, in batches."""

    source: Callable[[], Iterator[DomainBatch]]
    target: Callable[[], Iterator[Tensor]]
    """Images of the target domain, in adaptation; no labels."""


class DatasetPassMethod(Method):
    """A method that looks at all training images before the first step."""

    @abstractmethod
    def dataset_pass(self, images: TrainingImages) -> dict[str, Tensor]:
        """Returns what can be learned from all images at once.

        It is computed once, kept with the run, and handed to `use_dataset_pass` then and at each
        resume.
        """

    @abstractmethod
    def use_dataset_pass(self, found: Mapping[str, Tensor]) -> None:
        """Applies what `dataset_pass` returned; it may set `remarks`."""
