"""CDANN: Deep Domain Generalization via Conditional Invariant Adversarial Networks (Li et al.; ECCV
2018), in the form of DomainBed.

Where classes are not equally frequent in all domains, features cannot hide their domain without
hiding their class. The discriminator d is therefore told the class: a learned vector e_y is added
to the features f, and what has to be alike are the domains of each class. Every class counts the
same, whatever its number of images n_y:

    L_domain = (1/C) Σ_y (1/n_y) Σ_{i of class y} CE(d(R_λ(f(x_i)) + e_y), domain_i)
    L = CE + L_domain,    R_λ: the identity, whose gradient is multiplied by −λ_p

As in DANN λ_p rises from 0 to 1 over the run, and one step trains both sides; DomainBed alternates.
"""

import math
from typing import Annotated

from pydantic import Field
from torch import nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, ParameterGroup, Progress, Traits, new_layers
from unseen.methods.shared import (
    accuracy,
    check_domains,
    classification,
    frozen_features,
    group_means,
    mean_of_present,
)
from unseen.networks.layers import perceptron, reversal_strength, reverse_gradient
from unseen.networks.stages import Network
from unseen.settings.base import Choice, LogUniform


class CDANN(Method):
    class Config(Method.Config):
        domain_weight: Annotated[float, LogUniform(1e-2, 1e2)] = Field(default=1.0, ge=0)
        """Factor of λ_p: how strongly the features are turned against the discriminator in the
        end."""
        schedule_steepness: float = Field(default=10.0, gt=0)
        """How early in the run λ_p approaches its final value."""
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

    traits = Traits(training_only=("discriminator", "class_vectors"))
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        check_domains(task, "cdann", "tells the training domains of a class apart")
        self.remarks = frozen_features(network, network.head, "the discriminator")
        width = math.prod(network.input_shapes[network.head])
        self.class_vectors = nn.Embedding(len(task.classes), width)
        self.discriminator = perceptron(
            width,
            len(task.domains),
            config.discriminator_width,
            config.discriminator_depth,
            config.discriminator_dropout,
        )

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network.run(batch.images, until=self.network.head)
        scores = self.network.run(features, since=self.network.head)
        task, right = classification(scores, batch.labels, self.task.label_smoothing)
        strength = reversal_strength(progress.ratio, self.config.schedule_steepness)
        strength *= self.config.domain_weight
        hidden = reverse_gradient(features.flatten(1), strength)
        guesses = self.discriminator(hidden + self.class_vectors(batch.labels)).float()
        each = functional.cross_entropy(guesses, batch.domains, reduction="none")
        # classes are counted in the whole batch, wherever its images are
        domain = mean_of_present(*group_means(each, batch.labels, len(self.task.classes)))
        return {
            "loss": task + domain,
            "task": task.detach(),
            "domain": domain.detach(),
            "domain_accuracy": accuracy(guesses, batch.domains),
            "reversal": task.new_tensor(strength),
            "accuracy": right,
        }

    def parameter_groups(self) -> list[ParameterGroup]:
        return [*super().parameter_groups(), new_layers(self.class_vectors, self.discriminator)]
