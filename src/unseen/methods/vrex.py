"""V-REx: Out-of-Distribution Generalization via Risk Extrapolation (Krueger et al., ICML 2021).

Where the training domains' risks R_e differ, a new domain may differ further in the same direction.
The variance of the risks is a penalty (equation 8), so that all domains are learned equally well:

    R_V-REx = β Var({R_1, ..., R_S}) + (1/S) Σ_e R_e

The variance is that of the S risks themselves (a mean of squares, no S − 1). As in the authors'
code the penalty has weight 1 at first, and β after a part of the run.
"""

from typing import Annotated

from pydantic import Field

from unseen.data.batch import DomainBatch
from unseen.methods.base import (
    Losses,
    Method,
    Progress,
    Traits,
    accuracy,
    losses,
    mean_of_present,
    penalty_weight,
)
from unseen.settings.experiment import AnnealedPenaltySettings
from unseen.settings.ranges import LogUniform


class VREx(Method):
    class Config(AnnealedPenaltySettings):
        penalty_weight: Annotated[float, LogUniform(1e-1, 1e5)] = Field(default=10.0, ge=0)
        """β, the weight of the variance of the domains' losses."""

    traits = Traits(stackable=True, compares_domains="compares the losses of the training domains")
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores, risks, counts = self.risks(batch)
        risk = mean_of_present(risks, counts)
        variance = mean_of_present((risks - risk).square(), counts)
        loss = risk + penalty_weight(self.config, progress, before=1.0) * variance
        correct = accuracy(scores, batch.labels)
        return losses(loss, task=risk, variance=variance, accuracy=correct)
