"""DANN: Domain-Adversarial Training of Neural Networks (Ganin et al.; JMLR 2016, equation 9).

A discriminator tells from the features which domain an image is of; a gradient reversal between
the two makes the features unlearn what it goes by. With features f, label head y, discriminator d:

    f:  ∂L_task − λ_p ∂L_domain      y:  ∂L_task      d:  ∂L_domain      λ_p = 2 / (1 + e^(−γp)) − 1

Adaptation: source images against unlabelled target images, in one pass through the network, so that
batch norm sees both. Generalization: source domain against source domain. Two ingredients of later
papers can be switched on: class-conditional features (CDAN, Long et al.; NeurIPS 2018) and the
entropy of target predictions (VADA, Shu et al.; ICLR 2018).
"""

import math
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.base import Losses, Method, ParameterGroup, Progress, Traits, new_layers
from unseen.methods.shared import check_domains, classification, joint_images
from unseen.networks.layers import perceptron, reversal_strength, reverse_gradient
from unseen.networks.stages import Network
from unseen.settings.base import Choice, LogUniform


class DANN(Method):
    class Config(Method.Config):
        site: str | None = None
        """Stage whose input the discriminator sees; empty: the classifier, whose input is the
        features."""
        domain_weight: Annotated[float, LogUniform(1e-2, 1e2)] = Field(default=1.0, ge=0)
        """Factor of λ_p: how strongly the features are turned against the discriminator in the
        end."""
        schedule_steepness: float = Field(default=10.0, gt=0)
        """γ: how early in the run λ_p approaches its final value."""
        condition: Literal["none", "class"] = "none"
        """What the discriminator sees: the features, or their products with the predicted
        probabilities of all classes (CDAN), which aligns domains class by class."""
        target_entropy_weight: float = Field(default=0.0, ge=0)
        """Weight of the mean entropy of predictions on target images (VADA); adaptation only."""
        discriminator_width: Annotated[int, LogUniform(64, 1024, whole=True)] = Field(
            default=128, gt=0
        )
        """Units in each hidden layer of the discriminator."""
        discriminator_depth: int = Field(default=1, ge=0)
        """Hidden layers of the discriminator; 0 makes it linear."""
        discriminator_dropout: Annotated[float, Choice((0.0, 0.1, 0.5))] = Field(
            default=0.0, ge=0, lt=1
        )
        """Dropout rate of the discriminator's hidden units."""
        discriminator_lr: float | None = Field(default=None, gt=0)
        """Learning rate of the discriminator; empty: the optimizer's."""

    traits = Traits(target_images="optional", training_only=("discriminator",))
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        self.site = network.in_order([config.site or network.head])[0]
        _check(task, config)
        if self.site == network.frozen_until:
            self.remarks = (
                f"nothing before '{self.site}' learns, so the discriminator changes nothing: set "
                "an earlier network.freeze_until or a later method.site",
            )
        width = math.prod(network.input_shapes[self.site])
        if config.condition == "class":
            width *= len(task.classes)
        self.discriminator = perceptron(
            width,
            2 if task.target else len(task.domains),
            config.discriminator_width,
            config.discriminator_depth,
            config.discriminator_dropout,
        )

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        images, domains = joint_images(batch, self.task)
        # in adaptation both sides count equally, whatever their numbers
        balance = 1 / domains.bincount() if self.task.target else None
        features = self.network.run(images, until=self.site)
        scores = self.network.run(features, since=self.site)
        n_labelled = len(batch.labels)
        task_loss, accuracy = classification(
            scores[:n_labelled], batch.labels, self.task.label_smoothing
        )
        strength = reversal_strength(progress.ratio, self.config.schedule_steepness)
        strength *= self.config.domain_weight
        seen = reverse_gradient(self._seen(features, scores), strength)
        guesses = self.discriminator(seen).float()
        domain_loss = functional.cross_entropy(guesses, domains, weight=balance)
        right = (guesses.detach().argmax(dim=1) == domains).float()
        losses = {
            "loss": task_loss + domain_loss,
            "task": task_loss.detach(),
            "domain": domain_loss.detach(),
            "domain_accuracy": _mean(right, domains, balance),
            "reversal": task_loss.new_tensor(strength),
            "accuracy": accuracy,
        }
        if self.config.target_entropy_weight:
            entropy = mean_entropy(scores[n_labelled:])
            losses["loss"] = losses["loss"] + self.config.target_entropy_weight * entropy
            losses["target_entropy"] = entropy.detach()
        return losses

    def _seen(self, features: Tensor, scores: Tensor) -> Tensor:
        """What the discriminator looks at, `[images, width]`; no gradient to the predictions."""
        features = features.flatten(1)
        if self.config.condition == "none":
            return features
        chances = scores.detach().softmax(dim=1)
        return (features[:, :, None] * chances[:, None, :]).flatten(1)

    def parameter_groups(self) -> list[ParameterGroup]:
        discriminator = new_layers(self.discriminator)
        discriminator["lr"] = self.config.discriminator_lr
        return [*super().parameter_groups(), discriminator]


def _check(task: Task, config: DANN.Config) -> None:
    if task.target is None:
        check_domains(
            task, "dann", "has no target to tell apart from the sources (setting=adaptation)"
        )
    if task.target is None and config.target_entropy_weight:
        raise SettingsError(
            f"method.target_entropy_weight={config.target_entropy_weight:g} needs target images; "
            "set setting=adaptation, or leave it at 0"
        )


def _mean(values: Tensor, kinds: Tensor, weights: Tensor | None) -> Tensor:
    """As cross_entropy takes it: all alike, or weighted by kind."""
    if weights is None:
        return values.mean()
    return (values * weights[kinds]).sum() / weights[kinds].sum()


def mean_entropy(scores: Tensor) -> Tensor:
    """−Σ p log p over classes, mean over images."""
    logs = scores.log_softmax(dim=1)
    return -(logs.exp() * logs).sum(dim=1).mean()
