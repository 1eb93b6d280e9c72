"""Best Sources Forward: Domain Generalization through Source-Specific Nets (Mancini et al.; ICIP
2018).

A shared trunk, a classifier f_j for each of S source domains, and a branch that predicts the domain
of an image, w(x) = softmax. Classifiers count as much as their domain is likely, and besides all
equally, in case the image is like none of them:

    z(x) = (1 − α) Σ_j w_j(x) f_j(x) + (α / S) Σ_j f_j(x) = Σ_j c_j f_j(x),  c_j = (1 − α) w_j + α/S

Training minimises the cross-entropy of z with the class plus that of w with the domain.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import DomainAware, Losses, Progress, Traits, accuracy, losses
from unseen.settings.ranges import LogUniform, Uniform


class Fusion(DomainAware):
    class Config(DomainAware.Config):
        agnostic_share: Annotated[float, Uniform(0, 1)] = Field(default=0.25, ge=0, le=1)
        """α, the part of the score in which all classifiers have equal weight."""
        domain_loss_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """Weight of the domain branch's cross-entropy."""
        route: Literal["predicted", "oracle"] = "predicted"
        """What weights the classifiers in training: the branch's w, or the true domain."""
        fuse: Literal["logits", "probabilities"] = "logits"
        """What is averaged: the classifiers' scores (the paper), or their probabilities."""

    traits = Traits(stackable=True)
    config: Config

    def set_up(self) -> None:
        network, n_domains = self.network, len(self.task.domains)
        self.heads = network.clone_tails(network.head, n_domains)
        width = math.prod(network.input_shapes[network.head])
        self.branch = nn.Sequential(nn.Flatten(), nn.Linear(width, n_domains))
        network.cut(network.head)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network(batch.images)
        domain_scores = self.branch(features)
        domain_loss = functional.cross_entropy(domain_scores, batch.domains)
        weights = domain_scores.softmax(dim=1)
        if self.config.route == "oracle":
            weights = functional.one_hot(batch.domains, batch.n_domains).to(domain_scores)
        fused = self._fused(self._scores(features), weights)
        task_loss, correct = self.classification(fused, batch.labels)
        loss = task_loss + self.config.domain_loss_weight * domain_loss
        recorded = {"accuracy": correct, "domain_accuracy": accuracy(domain_scores, batch.domains)}
        return losses(loss, task=task_loss, domain=domain_loss, **recorded)

    def _scores(self, features: Tensor) -> Tensor:
        """Returns f_j(x) of all classifiers, `[images, domains, classes]`."""
        return torch.stack([head(features) for head in self.heads], dim=1)

    def _fused(self, scores: Tensor, weights: Tensor) -> Tensor:
        """Returns z, or the logarithm of the mixed probabilities, whose cross-entropy is their
        own."""
        share = self.config.agnostic_share
        shares = ((1 - share) * weights + share / len(self.heads)).unsqueeze(2)
        if self.config.fuse == "logits":
            return (shares * scores).sum(dim=1)
        tiny = torch.finfo(shares.dtype).tiny  # a share of nothing has no logarithm
        return (shares.clamp_min(tiny).log() + scores.log_softmax(dim=2)).logsumexp(dim=1)

    def opinions(self, images: Tensor) -> Tensor:
        """Returns scores for a w that is certain of one domain after the other."""
        return self.scores_and_opinions(images)[1]

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.network(images)  # trunk and classifiers run once
        scores = self._scores(features)
        certain = torch.eye(len(self.heads), dtype=scores.dtype, device=scores.device)
        opinions = [self._fused(scores, weights) for weights in certain.unsqueeze(1)]
        return self._fused(scores, self.branch(features).softmax(dim=1)), torch.stack(opinions)
