"""Kinds of methods with a larger contract: by domain, in two phases, after a survey."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress
from unseen.methods.building_blocks import inactive


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
