"""Multi-headed: a shared trunk, and a head of its own for each source domain.

The second baseline of the DMG paper (section 3). In training each image goes through its own
domain's head; where the domain is unknown, the scores of all heads are averaged.
"""

import torch
from torch import Tensor

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import DomainAware, Losses, Progress, Traits
from unseen.methods.shared import by_own_group, losses
from unseen.networks.stages import Network


class MultiHead(DomainAware):
    class Config(DomainAware.Config):
        split: str | None = None
        """First stage of the heads; empty: only the classifier (the paper's choice)."""

    traits = Traits(stackable=True)
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        split = config.split or network.head
        self.heads = network.clone_tails(split, len(task.domains))
        network.cut(split)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = by_own_group(self.heads, self.network(batch.images), batch.domains)
        loss, accuracy = self.classification(scores, batch.labels)
        return losses(loss, accuracy=accuracy)

    def opinions(self, images: Tensor) -> Tensor:
        features = self.network(images)  # the trunk, once for all heads
        return torch.stack([head(features) for head in self.heads])
