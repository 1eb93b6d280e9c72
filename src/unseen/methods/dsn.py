"""DSN: Domain Separation Networks (Bousmalis et al.; NeurIPS 2016).

The shared encoder E_c (the network up to its head G) gives the code h_c that classes are told
from, private encoders E_p give codes h_p of what is peculiar to a domain. Both rebuild the image.

    L = L_task + α L_recon + β L_difference + γ L_similarity                        (equation 1)

L_recon compares images up to a constant (4), L_difference keeps h_c and h_p apart (5), and
L_similarity makes h_c alike in all domains: against a discriminator (7), or by MMD (8). Adaptation:
a private encoder for the sources and one for the target. Generalization: one for each source
domain. Predictions need E_c and G alone.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.methods import base
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.networks.layers import convolution, perceptron, reversal_strength, reverse_gradient
from unseen.settings.ranges import LogUniform

BANDWIDTHS = (
    *(10.0**power for power in range(-6, 1)),
    *(5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0),
    *(10.0**power for power in range(2, 7)),
)
"""Of the authors' code: kernels exp(−d² / 2b) from very narrow to very wide."""
_SMALLEST_DISCREPANCY = 1e-4  # of the authors' code: below it, the codes count as alike


class DSN(Method):
    class Config(Method.Config):
        reconstruction_weight: Annotated[float, LogUniform(1e-3, 1e-1)] = Field(default=0.01, ge=0)
        """α, the weight of the reconstruction loss."""
        difference_weight: Annotated[float, LogUniform(1e-2, 10)] = Field(default=1.0, ge=0)
        """β, the weight of the soft orthogonality between shared and private codes."""
        similarity_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.25, ge=0)
        """γ, the weight of the loss that makes shared codes alike in all domains."""
        similarity: Literal["adversarial", "mmd"] = "adversarial"
        """How shared codes are made alike: by a domain discriminator, or by kernels (MMD)."""
        warm_up: float = Field(default=0.1, ge=0, lt=1)
        """Share of the run before codes are kept apart and made alike."""
        schedule_steepness: float = Field(default=10.0, gt=0)
        """How soon after the warm-up the discriminator has its full effect on the shared code."""
        discriminator_width: int = Field(default=128, gt=0)
        """Units in the discriminator's hidden layer."""
        reconstruction_size: int = Field(default=32, ge=8)
        """Largest side in pixels at which private encoders see images and the decoder reconstructs
        them."""

    traits = Traits(
        target_images="optional",
        needs_pixels=True,
        compares_domains="has no target to separate from the sources (setting=adaptation)",
        training_only=("private_encoders", "decoder", "discriminator"),
    )
    config: Config

    def set_up(self) -> None:
        config, network, task = self.config, self.network, self.task
        width = math.prod(network.input_shapes[network.head])
        self.size = min(config.reconstruction_size, network.image_size)
        n_groups = 2 if task.target else len(task.domains)
        self.private_encoders = nn.ModuleList(_encoder(self.size, width) for _ in range(n_groups))
        self.decoder = _decoder(self.size, width)
        self.discriminator = nn.Sequential()
        if config.similarity == "adversarial":
            self.discriminator = perceptron(width, n_groups, config.discriminator_width, 1, 0.0)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config = self.config
        images, groups = base.joint_images(batch, self.task)
        features, scores = self.network.features_and_scores(images)
        task_loss, accuracy = self.classification(scores[: len(batch.labels)], batch.labels)
        shared = features.flatten(1).float()
        small = functional.interpolate(images, size=self.size, mode="bilinear", antialias=True)
        private = base.by_own_group(self.private_encoders, small, groups).float()
        reconstruction = reconstruction_loss(small, self.decoder(shared + private).float())
        # orthogonality and MMD are about all rows of a domain, not about single images
        all_shared, all_private, all_groups = map(across_devices.gather, (shared, private, groups))
        difference = difference_loss(all_shared, all_private, all_groups)
        active = float(progress.ratio >= config.warm_up)
        if config.similarity == "mmd":
            similarity = mmd_loss(all_shared, all_groups, len(self.private_encoders))
            similarity_weight = config.similarity_weight * active
        else:
            # in the warm-up the discriminator learns already; the shared code does not yet heed it
            since = max(0.0, progress.ratio - config.warm_up) / (1 - config.warm_up)
            strength = reversal_strength(since, config.schedule_steepness)
            guesses = self.discriminator(reverse_gradient(shared, strength)).float()
            # in adaptation both sides count equally
            balanced = self.task.target is not None
            similarity, _ = base.discrimination(guesses, groups, balanced)
            similarity_weight = config.similarity_weight
        loss = task_loss + config.reconstruction_weight * reconstruction
        loss = loss + config.difference_weight * active * difference
        recorded = {"reconstruction": reconstruction, "difference": difference}
        recorded |= {"similarity": similarity, "accuracy": accuracy}
        return base.losses(loss + similarity_weight * similarity, task=task_loss, **recorded)


def reconstruction_loss(images: Tensor, rebuilt: Tensor) -> Tensor:
    """Returns equation 4, ‖x − x̂‖² / k − (Σ (x − x̂))² / k² for k numbers an image; mean over
    images.

    The second term takes off what a constant accounts for: shapes matter, overall brightness not.
    """
    error = (images - rebuilt).flatten(1)
    return (error.square().mean(dim=1) - error.mean(dim=1).square()).mean()


def difference_loss(shared: Tensor, private: Tensor, groups: Tensor) -> Tensor:
    """Returns equation 5, ‖H_cᵀ H_p‖² as in the authors' code: columns centred, rows of length one,
    mean over the entries; mean over the groups that are there."""
    parts: list[Tensor] = []
    for group in groups.bincount().nonzero():
        own = [codes[groups == group] for codes in (shared, private)]
        h_c, h_p = (functional.normalize(h - h.mean(dim=0), dim=1, eps=1e-6) for h in own)
        parts.append((h_c.T @ h_p).square().mean())
    return torch.stack(parts).mean()


def mmd_loss(codes: Tensor, groups: Tensor, n_groups: int) -> Tensor:
    """Returns equation 8 between each two groups, at least 1e-4 as in the authors' code; mean over
    pairs, zero where there is no pair."""
    gammas = [1 / (2 * bandwidth) for bandwidth in BANDWIDTHS]
    member = functional.one_hot(groups, n_groups).to(codes)
    discrepancies = base.kernel_discrepancies(codes, member, gammas)
    return base.mean_of_pairs(discrepancies.clamp_min(_SMALLEST_DISCREPANCY), member.sum(dim=0))


def _encoder(size: int, width: int) -> nn.Sequential:
    """Builds a private encoder; with group norm, small batches of one domain do no harm."""
    parts = (convolution(3, 16), convolution(16, 32), convolution(32, 64))
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64 * (size // 8) ** 2, width))


def _decoder(size: int, width: int) -> nn.Sequential:
    """Builds what makes an image of a code, through three convolutions at a fourth, half and full
    size."""
    quarter = size // 4
    parts = [nn.Linear(width, 32 * quarter**2), nn.Unflatten(1, (32, quarter, quarter))]
    for side in (size // 2, size):
        parts += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Upsample(side)]
    return nn.Sequential(*parts, nn.Conv2d(32, 3, 3, padding=1))
