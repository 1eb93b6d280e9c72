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

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.building_blocks import (
    check_domains,
    classification,
    frozen_features,
    in_full_precision,
    mean_of_pairs,
)
from unseen.networks.stages import Network
from unseen.search import LogUniform

GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""One over the squared widths of the kernels, from very wide to very narrow."""


class MMD(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
        """λ, the weight of the discrepancy between the domains' features."""

    traits = Traits(stackable=True)
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        check_domains(task, "mmd", "aligns the features of training domains")
        self.remarks = frozen_features(network, network.head, "their alignment")

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network.run(batch.images, until=self.network.head)
        scores = self.network.run(features, since=self.network.head)
        task, accuracy = classification(scores, batch.labels, self.task.label_smoothing)
        # the discrepancy is about all images of a domain, wherever they are
        rows = across_devices.gather(features.flatten(1).float())
        with in_full_precision(rows):
            penalty = discrepancy(rows, across_devices.gather(batch.domains), batch.n_domains)
        return {
            "loss": task + self.config.penalty_weight * penalty,
            "task": task.detach(),
            "penalty": penalty.detach(),
            "accuracy": accuracy,
        }


def discrepancy(rows: Tensor, domains: Tensor, n_domains: int) -> Tensor:
    """MMD², mean over pairs of domains."""
    # not by a matrix product: narrow kernels need small distances exactly
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = torch.stack([(-gamma * distances).exp() for gamma in GAMMAS]).sum(dim=0)
    member = functional.one_hot(domains, n_domains).to(rows)
    counts = member.sum(dim=0)
    shares = member / counts.clamp_min(1)
    similarity = shares.T @ kernel @ shares
    own = similarity.diagonal()
    return mean_of_pairs(own.unsqueeze(0) + own.unsqueeze(1) - 2 * similarity, counts)
