"""GroupDRO: Distributionally Robust Neural Networks for Group Shifts (Sagawa et al., ICLR 2020).

Not the average risk is minimised but that of the worst group, here of the worst training domain.
Algorithm 1 keeps a weight q_d for each domain, which grows with the domain's loss ℓ_d:

    q_d ← q_d exp(η ℓ_d),    q ← q / Σ_d q_d,    minimise Σ_d q_d ℓ_d

with q as a constant. The weights are kept as logarithms, so that no loss is too large for them.
"""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits, accuracy, group_means, losses
from unseen.settings.ranges import LogUniform


class GroupDRO(Method):
    class Config(Method.Config):
        weight_step: Annotated[float, LogUniform(1e-3, 1e-1)] = Field(default=0.01, ge=0)
        """η: how fast domains with a high loss gain weight."""

    traits = Traits(
        stackable=True,
        compares_domains="weights the training domains by their losses",
        training_only=("log_weights",),
    )
    config: Config

    def set_up(self) -> None:
        n_domains = len(self.task.domains)
        self.log_weights = nn.Buffer(torch.full((n_domains,), 1 / n_domains).log())

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        each = self.cross_entropy(scores, batch.labels, "none").float()
        risks, _ = group_means(each, batch.domains, batch.n_domains)
        grown = self.log_weights + self.config.weight_step * risks.detach()
        self.log_weights.copy_(grown.log_softmax(dim=0))
        loss, correct = (self.log_weights.exp() * risks).sum(), accuracy(scores, batch.labels)
        return losses(loss, unweighted=each.mean(), worst=risks.max(), accuracy=correct)

    def statistics(self) -> dict[str, Any]:
        """Returns q by domain."""
        named = zip(self.task.domains, self.log_weights.exp(), strict=True)
        return {"domain_weights": {domain: weight.item() for domain, weight in named}}
