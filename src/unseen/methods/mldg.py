"""MLDG: Learning to Generalize, Meta-Learning for Domain Generalization (Li et al., AAAI 2018).

Each step parts the source domains at random into meta-train and meta-test (algorithm 1). F is the
loss on the meta-train domains, and a virtual step down its gradient gives θ' = θ − α∇F(θ). What is
minimised is F(θ) + β·G(θ'), with G the loss on the meta-test domains (equation 3): a step that
helps some domains has to help the others, too. To first order in α this is F + βG − αβ ∇F·∇G
(equation 6), which rewards gradients that agree.
"""

from contextlib import ExitStack
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods.base import (
    Losses,
    Method,
    Progress,
    Traits,
    Weights,
    domains_in_random_order,
    gradient_step,
    losses,
)
from unseen.settings.ranges import LogUniform


class MLDG(Method):
    class Config(Method.Config):
        inner_lr: Annotated[float, LogUniform(1e-3, 1e-1)] = Field(default=0.01, ge=0)
        """α, the length of the virtual step on the meta-train domains."""
        meta_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """β, the weight of the loss on the meta-test domains after that step."""
        meta_test_domains: int = Field(default=1, ge=1)
        """How many training domains are meta-test in each step; the others are meta-train."""
        second_order: bool = True
        """Differentiate through the virtual step (the paper), or take its gradient as given."""

    traits = Traits(compares_domains="parts the training domains into meta-train and meta-test")
    config: Config

    def set_up(self) -> None:
        domains, tested = len(self.task.domains), self.config.meta_test_domains
        if tested >= domains:
            raise SettingsError(
                f"method.meta_test_domains={tested} leaves none of the {domains} training domains "
                f"for meta-train; choose at most {domains - 1}"
            )

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        in_test = self._meta_test(batch)
        weights: Weights = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        train_loss, accuracy = self._risk(weights, batch, ~in_test)  # F(θ)
        config = self.config
        moved = gradient_step(train_loss, weights, config.inner_lr, config.second_order)  # θ'
        # copies, so that batch norm's own statistics take in each step once: in the call above
        copies = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        test_loss, _ = self._risk(moved | copies, batch, in_test)  # G(θ')
        loss = train_loss + config.meta_weight * test_loss
        return losses(loss, meta_train=train_loss, meta_test=test_loss, accuracy=accuracy)

    def _meta_test(self, batch: DomainBatch) -> Tensor:
        """Returns which images are of this step's meta-test domains, drawn alike on all devices."""
        chosen = domains_in_random_order(batch)[: self.config.meta_test_domains]
        return torch.isin(batch.domains, chosen)

    def _risk(self, tensors: Weights, batch: DomainBatch, part: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean cross-entropy and accuracy over a part of the batch, with the network's
        weights (and buffers) replaced. Zero where a pooled batch has no image of the part."""
        count = across_devices.mean(part.sum().float()).clamp_min(1e-6)
        if not part.any():
            # differentiable twice, so that all devices take part in the same exchanges
            nothing = sum((t.square().sum() for t in tensors.values() if t.requires_grad), count)
            return 0.0 * nothing, torch.zeros_like(count)
        labels = batch.labels[part]
        with self.network.on_rows(part), ExitStack() as stack:
            if self.config.second_order:  # fused kernels of attention have no second derivative
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # pyright: ignore
            scores = functional_call(self.network, tensors, (batch.images[part],))
        correct = (scores.detach().argmax(dim=1) == labels).sum()
        return self.cross_entropy(scores, labels, "sum") / count, correct / count
