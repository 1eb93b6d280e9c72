"""MMD: Domain Generalization with Adversarial Feature Learning (Li et al., CVPR 2018), without its
autoencoder: features of all training domains get the same distribution, measured by kernels.

The squared maximum mean discrepancy of two domains compares the similarity of images within each of
them with that between them, for a kernel k that is a sum of Gaussians of many widths:

    MMD²(i, j) = mean k(z_i, z_i') + mean k(z_j, z_j') − 2 mean k(z_i, z_j)
    k(z, z') = Σ_γ exp(−γ ‖z − z'‖²),    γ = 0.001, 0.01, ..., 1000
    L = CE + λ mean_{i<j} MMD²(i, j)

As in DomainBed the means include each image beside itself.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import kernel_discrepancies, mean_of_pairs, penalised_features
from unseen.settings.ranges import LogUniform

GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""One over the squared widths of the kernels, from very wide to very narrow."""


class MMD(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """λ, the weight of the discrepancy between the domains' features."""

    traits = Traits(
        stackable=True,
        compares_domains="aligns the features of training domains",
        acts_on_features="their alignment",
    )
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        return penalised_features(self, batch, self.config.penalty_weight, discrepancy)


def discrepancy(rows: Tensor, domains: Tensor, n_domains: int) -> Tensor:
    """Returns MMD², the mean over pairs of domains."""
    return mean_of_pairs(*kernel_discrepancies(rows, domains, n_domains, GAMMAS))
