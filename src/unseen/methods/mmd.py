"""MMD: Domain Generalization with Adversarial Feature Learning (Li et al., CVPR 2018), without its
autoencoder: features of all training domains get the same distribution, measured by kernels.

The squared maximum mean discrepancy of two domains compares the similarity of images within each of
them with that between them, for a kernel k that is a sum of Gaussians of many widths:

    MMD²(i, j) = mean k(z_i, z_i') + mean k(z_j, z_j') − 2 mean k(z_i, z_j)
    k(z, z') = Σ_γ exp(−γ ‖z − z'‖²),    γ = 0.001, 0.01, ..., 1000
    L = CE + λ mean_{i<j} MMD²(i, j)

As in DomainBed the means include each image beside itself.
"""

from torch import Tensor

from unseen.methods.base import FeaturePenalty, kernel_discrepancies, mean_of_pairs
from unseen.settings.experiment import PenaltySettings

GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""One over the squared widths of the kernels, from very wide to very narrow."""


class MMD(FeaturePenalty):
    Config = PenaltySettings

    def penalty(self, features: Tensor, member: Tensor) -> Tensor:
        return mean_of_pairs(kernel_discrepancies(features, member, GAMMAS), member.sum(dim=0))
