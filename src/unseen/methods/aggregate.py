"""Aggregate (also ERM, DeepAll): one network on the images of all source domains together.

The baseline of every domain generalization paper, and a strong one: minimise the mean
cross-entropy over all images of the batch.
"""

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import losses


class Aggregate(Method):
    traits = Traits(stackable=True)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        loss, accuracy = self.classification(scores, batch.labels)
        return losses(loss, accuracy=accuracy)
