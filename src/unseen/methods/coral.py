"""CORAL: Deep CORAL, Correlation Alignment for Deep Domain Adaptation (Sun and Saenko, 2016).

Features whose covariance C_i is the same in all domains cannot be told apart by second-order
statistics. The form for generalization (DomainBed) aligns means μ, too, between each two training
domains, and averages over pairs and over the D (or D²) numbers:

    L = CE + λ mean_{i<j} [ ‖μ_i − μ_j‖² / D + ‖C_i − C_j‖²_F / D² ]

(the paper has ‖C_i − C_j‖²_F / 4D² alone). Covariances divide by n − 1. They are never built: with
centred features Z_i of n_i images ⟨C_i, C_j⟩ = ‖Z_i Z_jᵀ‖²_F / (n_i − 1)(n_j − 1), which costs
n²D instead of nD² operations, and ‖C_i − C_j‖² = ⟨C_i, C_i⟩ + ⟨C_j, C_j⟩ − 2 ⟨C_i, C_j⟩.
"""

from torch import Tensor

from unseen.methods.base import FeaturePenalty, between, mean_of_pairs
from unseen.settings.experiment import PenaltySettings


class CORAL(FeaturePenalty):
    Config = PenaltySettings

    def penalty(self, features: Tensor, member: Tensor) -> Tensor:
        counts = member.sum(dim=0)
        means = (member / counts.clamp_min(1)).T @ features
        between_means = (means.unsqueeze(0) - means.unsqueeze(1)).square().mean(dim=2)
        centred = features - member @ means
        shares = member / (counts - 1).clamp_min(1)
        covariances = between(shares.T @ (centred @ centred.T).square() @ shares)
        return mean_of_pairs(between_means + covariances / features.shape[1] ** 2, counts)
