"""Multi-headed: a shared trunk, and a head of its own for each source domain.

The second baseline of the DMG paper (section 3). In training each image goes through its own
domain's head; where the domain is unknown, the scores of all heads are averaged.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, Progress, classification
from unseen.networks.stages import Network


class MultiHead(Method):
    class Config(Method.Config):
        split: str | None = None
        """First stage of the heads; empty: the classifier alone (the paper's choice)."""

    uses_domain = True
    stackable = True
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        split = config.split or network.head
        self._classifier_is_new = network.head in network.new_stages
        self.heads = nn.ModuleList(network.clone_tail(split) for _ in task.domains)
        network.cut(split)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network(batch.images)
        scores = None
        for domain, head in enumerate(self.heads):
            rows = (batch.domains == domain).nonzero().squeeze(1)
            if len(rows) == 0:
                continue
            own = head(features[rows])
            if scores is None:
                scores = own.new_zeros(len(batch.images), own.shape[1])
            scores = scores.index_copy(0, rows, own)
        assert scores is not None
        loss, accuracy = classification(scores, batch.labels)
        # a pooled batch may lack a domain; its head still takes part, with gradient zero
        absent = sum(p.sum() for head in self.heads for p in head.parameters())
        return {"loss": loss + 0.0 * absent, "accuracy": accuracy}

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None:
            return self.opinions(images).mean(dim=0)
        return self.heads[domain](self.network(images))

    @property
    def averages_opinions(self) -> bool:
        return True

    def opinions(self, images: Tensor) -> Tensor:
        features = self.network(images)  # the trunk, once for all heads
        return torch.stack([head(features) for head in self.heads])

    def new_layers(self) -> Iterable[nn.Module]:
        classifiers = [list(head.children())[-1] for head in self.heads]
        return classifiers if self._classifier_is_new else []
