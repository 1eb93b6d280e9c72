"""Spectral decoupling: Gradient Starvation (Pezeshki et al., NeurIPS 2021).

Cross-entropy learns the features that explain the labels soonest and then starves the others: their
gradient is gone once the labels are explained. An L2 penalty on the scores ŷ in place of one on the
weights decouples features, so that each is learned at its own pace (equation 25):

    L = CE(ŷ, y) + λ ‖ŷ‖²            here: the mean over images and classes, as in DomainBed
"""

from typing import Annotated

from pydantic import Field

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits, penalised
from unseen.settings.ranges import LogUniform


class SD(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(1e-5, 1e-1)] = Field(default=0.1, ge=0)
        """λ, the weight of the mean squared score."""

    traits = Traits(stackable=True)
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        task, accuracy = self.classification(scores, batch.labels)
        penalty = scores.float().square().mean()
        return penalised(task, self.config.penalty_weight, penalty, accuracy)
