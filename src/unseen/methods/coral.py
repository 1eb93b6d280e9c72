"""CORAL: Deep CORAL, Correlation Alignment for Deep Domain Adaptation (Sun and Saenko, 2016).

Features whose covariance C_i is the same in all domains cannot be told apart by second-order
statistics. The form for generalization (DomainBed) aligns means μ, too, between each two training
domains, and averages over pairs and over the D (or D²) numbers:

    L = CE + λ mean_{i<j} [ ‖μ_i − μ_j‖² / D + ‖C_i − C_j‖²_F / D² ]

(the paper has ‖C_i − C_j‖²_F / 4D² alone). Covariances divide by n − 1. They are never built: with
centred features Z_i of n_i images ⟨C_i, C_j⟩ = ‖Z_i Z_jᵀ‖²_F / (n_i − 1)(n_j − 1), which costs
n²D instead of nD² operations, and ‖C_i − C_j‖² = ⟨C_i, C_i⟩ + ⟨C_j, C_j⟩ − 2 ⟨C_i, C_j⟩.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import mean_of_pairs, penalised_features
from unseen.settings.ranges import LogUniform


class CORAL(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """λ, the weight of the distance between the domains' means and covariances."""

    traits = Traits(
        stackable=True,
        compares_domains="aligns the features of training domains",
        acts_on_features="their alignment",
    )
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        return penalised_features(self, batch, self.config.penalty_weight, misalignment)


def misalignment(rows: Tensor, domains: Tensor, n_domains: int) -> Tensor:
    """Returns the mean over pairs of domains of squared differences of means and of covariances."""
    member = functional.one_hot(domains, n_domains).to(rows)
    counts = member.sum(dim=0)
    means = (member / counts.clamp_min(1)).T @ rows
    between_means = (means.unsqueeze(0) - means.unsqueeze(1)).square().mean(dim=2)
    centred = rows - member @ means
    shares = member / (counts - 1).clamp_min(1)
    inner = shares.T @ (centred @ centred.T).square() @ shares
    own = inner.diagonal()
    between_covariances = own.unsqueeze(0) + own.unsqueeze(1) - 2 * inner
    return mean_of_pairs(between_means + between_covariances / rows.shape[1] ** 2, counts)
