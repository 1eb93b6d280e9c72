"""Multi-headed: a shared trunk, and a head of its own for each source domain.

The second baseline of the DMG paper (section 3). In training each image goes through its own
domain's head; where the domain is unknown, the scores of all heads are averaged.
"""

import torch
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.methods.base import DomainAware, Losses, Progress, Traits, by_own_group, losses


class MultiHead(DomainAware):
    class Config(DomainAware.Config):
        split: str | None = None
        """First stage of the heads; empty: only the classifier (the paper's choice)."""

    traits = Traits(stackable=True)
    config: Config

    def set_up(self) -> None:
        split = self.config.split or self.network.head
        self.heads = self.network.clone_tails(split, len(self.task.domains))
        self.network.cut(split)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = by_own_group(self.heads, self.network(batch.images), batch.domains)
        loss, accuracy = self.classification(scores, batch.labels)
        return losses(loss, accuracy=accuracy)

    def opinions(self, images: Tensor) -> Tensor:
        features = self.network(images)  # the trunk, once for all heads
        return torch.stack([head(features) for head in self.heads])
