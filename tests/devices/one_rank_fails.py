"""A method that meets a mistake on the second process alone."""

import torch

from unseen.data.batch import DomainBatch
from unseen.errors import DataError
from unseen.methods.aggregate import Aggregate
from unseen.methods.base import Losses, Progress


class FailsOnSecond(Aggregate):
    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        if progress.step == 1 and torch.distributed.get_rank() == 1:
            raise DataError("the second process alone cannot read photo.jpg")
        return super().loss(batch, progress)
