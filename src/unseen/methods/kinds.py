"""Kinds of methods with a larger contract: by domain, with aligned features, in two phases, after a
survey."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from unseen import across_devices
from unseen.config import MethodSettings
from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, Progress
from unseen.methods.building_blocks import (
    check_domains,
    classification,
    frozen_features,
    in_full_precision,
    inactive,
)
from unseen.networks.stages import Network


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
