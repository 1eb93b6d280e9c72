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
from typing import Literal

from pydantic import Field
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods import base
from unseen.methods.base import Losses, Method, ParameterGroup, Progress, Traits
from unseen.networks.layers import perceptron, reversal_strength, reverse_gradient
from unseen.settings.experiment import AdversarialSettings


class DANN(Method):
    class Config(AdversarialSettings):
        site: str | None = None
        """Stage whose input the discriminator sees; empty: the classifier, whose input is the
        features."""
        condition: Literal["none", "class"] = "none"
        """What the discriminator sees: the features, or their products with the predicted
        probabilities of all classes (CDAN), which aligns domains class by class."""
        target_entropy_weight: float = Field(default=0.0, ge=0)
        """Weight of the mean entropy of predictions on target images (VADA); adaptation only."""
        discriminator_lr: float | None = Field(default=None, gt=0)
        """Learning rate of the discriminator; empty: the optimizer's."""

    traits = Traits(
        target_images="optional",
        compares_domains="has no target to tell apart from the sources (setting=adaptation)",
        training_only=("discriminator",),
    )
    config: Config

    def set_up(self) -> None:
        config, task, network = self.config, self.task, self.network
        if task.target is None and config.target_entropy_weight:
            raise SettingsError(
                f"method.target_entropy_weight={config.target_entropy_weight:g} needs target "
                "images; set setting=adaptation, or leave it at 0"
            )
        (self.site,) = network.in_order([config.site or network.head])
        advice = "set an earlier network.freeze_until or a later method.site"
        self.remark_on_frozen(self.site, "the discriminator", advice)
        width = math.prod(network.input_shapes[self.site])
        if config.condition == "class":
            width *= len(task.classes)
        n_groups = 2 if task.target else len(task.domains)
        hidden = (config.discriminator_width, config.discriminator_depth)
        self.discriminator = perceptron(width, n_groups, *hidden, config.discriminator_dropout)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config = self.config
        images, domains = base.joint_images(batch, self.task)
        features, scores = self.network.features_and_scores(images, self.site)
        task, accuracy = self.classification(scores[: len(batch.labels)], batch.labels)
        seen = features.flatten(1)
        if config.condition == "class":  # no gradient to the predictions
            seen = (seen[:, :, None] * scores.detach().softmax(dim=1)[:, None, :]).flatten(1)
        strength = config.domain_weight * reversal_strength(
            progress.ratio, config.schedule_steepness
        )
        guesses = self.discriminator(reverse_gradient(seen, strength)).float()
        # in adaptation both sides count equally, whatever their numbers
        balanced = self.task.target is not None
        domain, domain_accuracy = base.discrimination(guesses, domains, balanced)
        recorded = {"domain": domain, "domain_accuracy": domain_accuracy}
        recorded |= {"reversal": task.new_tensor(strength), "accuracy": accuracy}
        loss = task + domain
        if config.target_entropy_weight:
            recorded["target_entropy"] = mean_entropy(scores[len(batch.labels) :])
            loss = loss + config.target_entropy_weight * recorded["target_entropy"]
        return base.losses(loss, task=task, **recorded)

    def parameter_groups(self) -> list[ParameterGroup]:
        own, rate = list(self.discriminator.parameters()), self.config.discriminator_lr
        return [ParameterGroup(params=own, lr=rate, new=True), *super().parameter_groups()]


def mean_entropy(scores: Tensor) -> Tensor:
    """Returns −Σ p log p over classes, mean over images."""
    logs = scores.log_softmax(dim=1)
    return -(logs.exp() * logs).sum(dim=1).mean()
