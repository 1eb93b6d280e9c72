"""Methods that go wrong on the second process alone."""

import os
import signal

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


class KilledOnSecond(Aggregate):
    """Only where there is a second process."""

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        distributed = torch.distributed.is_initialized()
        if progress.step == 6 and distributed and torch.distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(batch, progress)
