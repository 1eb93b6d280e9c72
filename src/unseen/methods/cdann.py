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

from torch import nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import accuracy, group_means, losses, mean_of_present
from unseen.networks.layers import perceptron, reversal_strength, reverse_gradient
from unseen.networks.stages import Network
from unseen.settings.experiment import AdversarialSettings


class CDANN(Method):
    class Config(AdversarialSettings):
        pass

    traits = Traits(
        compares_domains="tells the training domains of a class apart",
        acts_on_features="the discriminator",
        training_only=("discriminator", "class_vectors"),
    )
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        width = math.prod(network.input_shapes[network.head])
        self.class_vectors = nn.Embedding(len(task.classes), width)
        sizes = (len(task.domains), config.discriminator_width, config.discriminator_depth)
        self.discriminator = perceptron(width, *sizes, config.discriminator_dropout)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network.run(batch.images, until=self.network.head)
        scores = self.network.run(features, since=self.network.head)
        task, correct = self.classification(scores, batch.labels)
        steepness = self.config.schedule_steepness
        strength = self.config.domain_weight * reversal_strength(progress.ratio, steepness)
        seen = reverse_gradient(features.flatten(1), strength) + self.class_vectors(batch.labels)
        guesses = self.discriminator(seen).float()
        each = functional.cross_entropy(guesses, batch.domains, reduction="none")
        # classes are counted in the whole batch, wherever its images are
        domain = mean_of_present(*group_means(each, batch.labels, len(self.task.classes)))
        return losses(
            task + domain,
            task=task,
            domain=domain,
            domain_accuracy=accuracy(guesses, batch.domains),
            reversal=task.new_tensor(strength),
            accuracy=correct,
        )
