"""MetaReg: Domain Generalization using Meta-Regularization (Balaji et al., NeurIPS 2018).

Features F_ψ are shared; the regulariser R_φ(θ) = Σ_k φ_k|θ_k| has one coefficient, of either sign,
for each weight of the classifier. Phase 1 (algorithm 1) trains ψ with one classifier θ_i for each
source domain and learns φ: from β_1 = θ_a, l steps β ← β − α∇_β[CE_a(ψ, β) + R_φ(β)] on a domain a
are to serve another domain b, so φ goes down the gradient of CE_b(ψ, β_l) through all of them.
Phase 2 keeps ψ and trains it with a new classifier θ on all domains, minimising CE + R_φ(θ).
"""

from collections.abc import Iterable
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.methods import base
from unseen.methods.base import Losses, ParameterGroup, Progress, Traits, TwoPhases, Weights
from unseen.settings.ranges import LogUniform, Uniform


class MetaReg(TwoPhases):
    class Config(TwoPhases.Config):
        meta_share: Annotated[float, Uniform(0.2, 0.6)] = Field(default=0.4, ge=0, lt=1)
        """Share of the run that learns the regulariser; the rest trains the final classifier."""
        inner_steps: int = Field(default=5, ge=1)
        """l, the number of regularised steps on one domain; each uses all its images in the
        batch."""
        inner_lr: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, gt=0)
        """α, the length of those steps."""
        meta_lr: Annotated[float, LogUniform(1e-5, 1e-2)] = Field(default=1e-4, gt=0)
        """Learning rate of the coefficients φ."""

    traits = Traits(
        compares_domains="learns from pairs of training domains",
        training_only=("heads", "coefficients"),
    )
    config: Config

    def set_up(self) -> None:
        self.heads = self.network.clone_tails(self.network.head, len(self.task.domains))
        first = matrices(self.heads[0].parameters())
        self.coefficients = nn.ParameterList(torch.zeros_like(weight) for weight in first)

    def boundary(self, steps: int) -> int:
        return min(round(self.config.meta_share * steps), steps - 1)

    def first_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns the cross-entropy of each domain's own head for ψ and θ_i; for φ the meta-
        gradient."""
        features = self.network.run(batch.images, until=self.network.head)
        own = base.by_own_group(self.heads, features, batch.domains)
        task, accuracy = self.classification(own, batch.labels)
        meta, gradients = self.meta_gradient(features.detach(), batch)
        loss = task + base.with_gradients(list(self.coefficients), gradients)
        return base.losses(loss, task=task, meta=meta, accuracy=accuracy)

    def meta_gradient(self, features: Tensor, batch: DomainBatch) -> tuple[Tensor, list[Tensor]]:
        """Returns CE_b(ψ, β_l) for two domains a ≠ b drawn at random, and its gradient by φ."""
        a, b = (int(domain) for domain in base.domains_in_random_order(batch)[:2])
        beta = {n: p.detach().requires_grad_() for n, p in self.heads[a].named_parameters()}
        for _ in range(self.config.inner_steps):
            regularised = self._risk(beta, features, batch, a) + self._penalty(beta.values())
            beta = base.gradient_step(regularised, beta, self.config.inner_lr, differentiable=True)
        meta = self._risk(beta, features, batch, b)
        return meta.detach(), list(torch.autograd.grad(meta, list(self.coefficients)))

    def _risk(self, beta: Weights, features: Tensor, batch: DomainBatch, domain: int) -> Tensor:
        """Returns the mean cross-entropy of a domain's images under the classifier β; zero if it
        has none."""
        part = batch.domains == domain
        count = across_devices.mean(part.sum().float()).clamp_min(1e-6)
        if not part.any():
            return base.inactive(beta.values())
        head = self.heads[domain]
        copies = {name: buffer.clone() for name, buffer in head.named_buffers()}
        scores = functional_call(head, beta | copies, (features[part],))
        return self.cross_entropy(scores, batch.labels[part], "sum") / count

    def _penalty(self, weights: Iterable[Tensor]) -> Tensor:
        """Returns R_φ, a sum over the weights as in the paper."""
        pairs = zip(self.coefficients, matrices(weights), strict=True)
        return torch.stack([(phi * weight.abs()).sum() for phi, weight in pairs]).sum()

    def second_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Sends all images through the new head; φ no longer changes."""
        scores = self.network(batch.images)
        task, accuracy = self.classification(scores, batch.labels)
        penalty = self._penalty(self.network.stage(self.network.head).parameters())
        return base.penalised(task, 1.0, penalty, accuracy)

    def idle_parameters(self) -> list[nn.Parameter]:
        if self.preparing:
            return list(self.network.stage(self.network.head).parameters())
        return [*self.heads.parameters(), *self.coefficients]

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if not self.preparing:
            return self.network(images)
        features = self.network.run(images, until=self.network.head)
        return torch.stack([head(features) for head in self.heads]).mean(dim=0)

    def parameter_groups(self) -> list[ParameterGroup]:
        phi = ParameterGroup(params=list(self.coefficients), lr=self.config.meta_lr, weight_decay=0)
        return [phi, *super().parameter_groups()]

    def statistics(self) -> dict[str, Any]:
        """Returns how strong the regulariser is, and what share of it drives weights up."""
        phi = torch.cat([p.detach().flatten() for p in self.coefficients])
        found = {"mean_strength": phi.abs().mean(), "negative_share": (phi < 0).float().mean()}
        return {"regulariser": {name: value.item() for name, value in found.items()}}


def matrices(weights: Iterable[Tensor]) -> list[Tensor]:
    """Returns what is regularised of a classifier: its weights, not its biases and scales."""
    return [weight for weight in weights if weight.ndim > 1]
