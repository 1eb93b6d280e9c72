"""SAM: Sharpness-Aware Minimization (Foret et al., ICLR 2021); SAGM: Sharpness-Aware Gradient
Matching for Domain Generalization (Wang et al., CVPR 2023).

Flat minima generalize better. SAM minimises not the loss at the weights θ but the highest one near
them, which a step of length ρ up the gradient approximates (equations 2 and 3):

    L_SAM(θ) = L(θ + ε),    ε = ρ ∇L(θ) / ‖∇L(θ)‖        with ε as a constant

SAGM minimises both losses, and takes the second one a little further down, which to first order in
α rewards gradients that agree: −α ∇L(θ) · ∇L(θ + ε) (its equation 6).

    L_SAGM(θ) = L(θ) + L(θ + ε − α ∇L(θ))

Batch norm records its statistics in the first pass alone.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, gradient_of_batch, losses, with_gradients
from unseen.networks.layers import statistics_kept
from unseen.settings.ranges import LogUniform


class SAM(Method):
    class Config(Method.Config):
        radius: Annotated[float, LogUniform(1e-2, 2e-1)] = Field(default=0.05, ge=0)
        """ρ: how far up the gradient the weights are moved."""
        alignment: float | None = Field(default=None, ge=0)
        """α of SAGM, which also minimises the loss at the weights themselves (its authors take
        0.001); empty: SAM."""

    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config = self.config
        x = self.network.start(batch.images)
        weights = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        here, accuracy = self.classification(self.network(x), batch.labels)  # L(θ)
        gradient = gradient_of_batch(here, weights)
        norm = torch.cat([g.flatten() for g in gradient.values()]).square().sum().sqrt()
        length = config.radius / norm.clamp_min(1e-12) - (config.alignment or 0.0)
        moved: dict[str, Tensor] = {n: p + length * gradient[n] for n, p in weights.items()}
        with statistics_kept(self.network):
            scores = functional_call(self.network, moved, (x,))
        there = loss = self.cross_entropy(scores, batch.labels)
        if config.alignment is not None:  # the gradient of L(θ) is known already
            own = with_gradients(list(weights.values()), list(gradient.values()))
            loss = there + here.detach() + own
        recorded = {"sharpness": there - here, "gradient_norm": norm, "accuracy": accuracy}
        return losses(loss, task=here, **recorded)
