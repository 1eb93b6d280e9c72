"""Aggregate (also ERM, DeepAll): one network on the images of all source domains together.

The baseline of every domain generalization paper, and a strong one: minimise the mean
cross-entropy over all images of the batch.
"""

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits, losses


class Aggregate(Method):
    traits = Traits(stackable=True)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        loss, accuracy = self.classification(self.network(batch.images), batch.labels)
        return losses(loss, accuracy=accuracy)
