"""CrossGrad: Generalizing Across Domains via Cross-Gradient Training (Shankar et al., ICLR 2018).

A label network with loss J_l and a domain network with loss J_d each supply the other with images.
Moving x along the gradient of J_d changes what the domain network sees in it, hence its domain;
moving it along that of J_l changes its label (algorithm 1):

    x_d = x + ε_l ∇_x J_d(x, d)        x_l = x + ε_d ∇_x J_l(x, y)
    label network:   (1 − α_l) J_l(x, y) + α_l J_l(x_d, y)
    domain network:  (1 − α_d) J_d(x, d) + α_d J_d(x_l, d)

Moved images are constants. The gradients are those of each image's own loss (a sum, no mean), so ε
means the same for all batch sizes, and are clipped element by element, as in the authors' code.
"""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits, accuracy, losses
from unseen.networks.layers import statistics_kept
from unseen.settings.ranges import LogUniform, Uniform


class CrossGrad(Method):
    class Config(Method.Config):
        label_step: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """ε_l: how far the label network's images move along the clipped gradient of the domain
        loss, in units of normalised pixels or, if stored, of features."""
        domain_step: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """ε_d: how far the domain network's images move along the clipped gradient of the label
        loss."""
        label_weight: Annotated[float, Uniform(0.1, 0.9)] = Field(default=0.5, ge=0, le=1)
        """α_l: share of the moved images in the label network's loss."""
        domain_weight: float = Field(default=0.5, ge=0, le=1)
        """α_d: share of the moved images in the domain network's loss."""
        clip: float = Field(default=0.1, gt=0)
        """Largest absolute value of a gradient's elements: a step moves no number further than
        ε times this."""

    traits = Traits(training_only=("domain_network",))
    config: Config

    def set_up(self) -> None:
        network = self.network
        width = math.prod(network.input_shapes[network.head])
        classifier = nn.Sequential(nn.Flatten(), nn.Linear(width, len(self.task.domains)))
        first = network.frozen_until or network.names[0]
        self.domain_network = network.clone_tail(first, classifier)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config = self.config
        x = self.network.start(batch.images).detach().requires_grad_()
        scores, domain_scores = self.network(x), self.domain_network(x)
        label_loss = self.cross_entropy(scores, batch.labels, "none")
        domain_loss = functional.cross_entropy(domain_scores, batch.domains, reduction="none")
        x_d = self._moved(x, domain_loss, config.label_step)
        x_l = self._moved(x, label_loss, config.domain_step)
        with statistics_kept(self):
            label_loss_moved = self.cross_entropy(self.network(x_d), batch.labels)
            domain_loss_moved = functional.cross_entropy(self.domain_network(x_l), batch.domains)
        task = torch.lerp(label_loss.mean(), label_loss_moved, config.label_weight)
        domain = torch.lerp(domain_loss.mean(), domain_loss_moved, config.domain_weight)
        recorded = {"accuracy": accuracy(scores, batch.labels)}
        recorded["domain_accuracy"] = accuracy(domain_scores, batch.domains)
        return losses(task + domain, task=task, domain=domain, **recorded)

    def _moved(self, x: Tensor, losses: Tensor, step: float) -> Tensor:
        """Returns images moved up the clipped gradient of their own losses; a constant."""
        (gradient,) = torch.autograd.grad(losses.sum(), x, retain_graph=True)
        return x.detach() + step * gradient.clamp(-self.config.clip, self.config.clip)
