"""MLDG: Learning to Generalize, Meta-Learning for Domain Generalization (Li et al., AAAI 2018).

Each step parts the source domains at random into meta-train and meta-test (algorithm 1). F is the
loss on the meta-train domains, and a virtual step down its gradient gives θ' = θ − α∇F(θ). What is
minimised is F(θ) + β·G(θ'), with G the loss on the meta-test domains (equation 3): a step that
helps some domains has to help the others, too. To first order in α this is F + βG − αβ ∇F·∇G
(equation 6), which rewards gradients that agree.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import domains_in_random_order, gradient_step, losses
from unseen.networks.stages import Network
from unseen.settings.ranges import LogUniform

Tensors = dict[str, Tensor]


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

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        if config.meta_test_domains >= len(task.domains):
            raise SettingsError(
                f"method.meta_test_domains={config.meta_test_domains} leaves none of the "
                f"{len(task.domains)} training domains for meta-train; choose at most "
                f"{len(task.domains) - 1}"
            )

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        in_test = self._meta_test(batch)
        weights: Tensors = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        train_loss, accuracy = self._risk(weights, batch, ~in_test)  # F(θ)
        config = self.config
        moved = gradient_step(train_loss, weights, config.inner_lr, config.second_order)  # θ'
        # copies, so that batch norm's own statistics take in each step once: in the call above
        copies: Tensors = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        test_loss, _ = self._risk(moved | copies, batch, in_test)  # G(θ')
        loss = train_loss + config.meta_weight * test_loss
        return losses(loss, meta_train=train_loss, meta_test=test_loss, accuracy=accuracy)

    def _meta_test(self, batch: DomainBatch) -> Tensor:
        """Returns which images are of this step's meta-test domains, drawn alike on all devices."""
        chosen = domains_in_random_order(batch)[: self.config.meta_test_domains]
        return torch.isin(batch.domains, chosen)

    def _risk(self, tensors: Tensors, batch: DomainBatch, part: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean cross-entropy and accuracy over a part of the batch, with the network's
        weights (and buffers) replaced. Zero where a pooled batch has no image of the part."""
        count = across_devices.mean(part.sum().float()).clamp_min(1e-6)
        if not part.any():
            # differentiable twice, so that all devices take part in the same exchanges
            nothing = sum((t.square().sum() for t in tensors.values() if t.requires_grad), count)
            return 0.0 * nothing, torch.zeros_like(count)
        labels = batch.labels[part]
        twice = _differentiable_twice() if self.config.second_order else nullcontext()
        with twice, self.network.on_rows(part):
            scores = functional_call(self.network, tensors, (batch.images[part],))
        correct = (scores.detach().argmax(dim=1) == labels).sum()
        return self.cross_entropy(scores, labels, "sum") / count, correct / count


def _differentiable_twice() -> AbstractContextManager[Any]:
    """Computes attention by plain products: its fused kernels have no second derivative."""
    return sdpa_kernel(SDPBackend.MATH)  # pyright: ignore[reportUnknownVariableType]
