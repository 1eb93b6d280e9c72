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

from unseen.data.batch import DomainBatch
from unseen.methods import base
from unseen.methods.base import Losses, Method, Progress, Traits, accuracy
from unseen.networks.layers import perceptron, reversal_strength, reverse_gradient
from unseen.settings.experiment import AdversarialSettings


class CDANN(Method):
    Config = AdversarialSettings
    traits = Traits(
        compares_domains="tells the training domains of a class apart",
        acts_on_features="the discriminator",
        training_only=("discriminator", "class_vectors"),
    )
    config: AdversarialSettings

    def set_up(self) -> None:
        config, task = self.config, self.task
        width = math.prod(self.network.input_shapes[self.network.head])
        self.class_vectors = nn.Embedding(len(task.classes), width)
        sizes = (len(task.domains), config.discriminator_width, config.discriminator_depth)
        self.discriminator = perceptron(width, *sizes, config.discriminator_dropout)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features, scores = self.network.features_and_scores(batch.images)
        task, correct = self.classification(scores, batch.labels)
        steepness = self.config.schedule_steepness
        strength = self.config.domain_weight * reversal_strength(progress.ratio, steepness)
        seen = reverse_gradient(features.flatten(1), strength) + self.class_vectors(batch.labels)
        guesses = self.discriminator(seen).float()
        each = functional.cross_entropy(guesses, batch.domains, reduction="none")
        # classes are counted in the whole batch, wherever its images are
        of_classes = base.group_means(each, batch.labels, len(self.task.classes))
        domain = base.mean_of_present(*of_classes)
        recorded = {"domain": domain, "domain_accuracy": accuracy(guesses, batch.domains)}
        recorded |= {"reversal": task.new_tensor(strength), "accuracy": correct}
        return base.losses(task + domain, task=task, **recorded)
