"""IB-ERM: Invariance Principle Meets Information Bottleneck for Out-of-Distribution Generalization
(Ahuja et al., NeurIPS 2021).

Features that carry no more information than the labels need have less room for what holds in the
training domains alone. The entropy of features is bounded by their variance, which is the penalty:

    L = CE + λ (1/S) Σ_e mean_k Var_e(z_k)

with Var_e over the images of domain e (n − 1) of each of the features z in front of the classifier.
The penalty begins after a part of the run, as in DomainBed.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import annealed, mean_of_present, penalised_features
from unseen.settings.ranges import LogUniform


class IBERM(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(1e-1, 1e5)] = Field(default=100.0, ge=0)
        """λ, the weight of the variance of the features."""
        penalty_anneal: Annotated[float, LogUniform(2e-4, 1)] = Field(default=0.1, ge=0, le=1)
        """Share of the run before the penalty begins."""

    traits = Traits(stackable=True, acts_on_features="the penalty")
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config = self.config
        weight = annealed(progress.ratio, config.penalty_anneal, 0.0, config.penalty_weight)
        return penalised_features(self, batch, weight, variance)


def variance(rows: Tensor, domains: Tensor, n_domains: int) -> Tensor:
    """Returns the variance of features over the images of a domain, mean over features and over the
    domains that have images; zero for a single image."""
    member = functional.one_hot(domains, n_domains).to(rows)
    counts = member.sum(dim=0)
    means = (member / counts.clamp_min(1)).T @ rows
    squares = (rows - member @ means).square().mean(dim=1)
    return mean_of_present((squares @ member) / (counts - 1).clamp_min(1), counts)
