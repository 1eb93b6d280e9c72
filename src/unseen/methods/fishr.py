"""Fishr: Invariant Gradient Variances for Out-of-Distribution Generalization (Ramé et al., ICML
2022).

Domains that are learned by the same mechanism have gradients that spread alike. For the weights of
the classifier alone, v_e is the variance of the gradients g_i of single images of domain e, number
by number, and what differs between domains is the penalty (equation 4):

    v_e = mean_i g_i² − (mean_i g_i)²,    L = CE + λ (1/S) Σ_e ‖v_e − v̄‖²,    v̄ = (1/S) Σ_e v_e

with ‖·‖² as a mean over numbers. A linear classifier needs no gradient to be taken: with features z
(and a 1 for the bias) and r = p − 1[label] it is g_i = r_i z_iᵀ, so mean g² = mean (r² z²ᵀ).
Batches are small, so a moving average m_e takes the place of v_e: (γ m_e + (1 − γ) v_e) / (1 − γ),
divided as in the authors' code, so that its gradient is as large as without a memory.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods import base
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.settings.experiment import AnnealedPenaltySettings
from unseen.settings.ranges import LogUniform, Uniform


class Fishr(Method):
    class Config(AnnealedPenaltySettings):
        penalty_weight: Annotated[float, LogUniform(10, 1e4)] = Field(default=1000.0, ge=0)
        """λ, the weight of the differences between the domains' gradient variances."""
        penalty_anneal: Annotated[float, Uniform(0, 1)] = Field(default=0.3, ge=0, le=1)
        """Share of the run before the penalty begins."""
        memory: Annotated[float, Uniform(0.9, 0.99)] = Field(default=0.95, ge=0, lt=1)
        """γ: how much of the moving average of the variances stays at each step."""

    traits = Traits(
        stackable=True,
        compares_domains="compares the gradients of training domains",
        training_only=("variances",),
    )
    config: Config

    def set_up(self) -> None:
        head = self.network.stage(self.network.head)
        if not isinstance(head, nn.Linear):
            raise SettingsError(
                "fishr needs a network that ends in one linear classifier, found "
                f"{type(head).__name__} as stage '{self.network.head}'; choose another network"
            )
        shape = (len(self.task.domains), head.out_features, head.in_features + 1)
        self.variances = nn.Buffer(torch.zeros(shape))

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        memory = self.config.memory
        features, scores = self.network.features_and_scores(batch.images)
        task, accuracy = self.classification(scores, batch.labels)
        rows = (features.float(), scores.float(), batch.labels, batch.domains)
        # variances are about all images of a domain, wherever they are
        z, o, labels, domains = map(across_devices.gather, rows)
        with torch.autocast(z.device.type, enabled=False):  # single precision stays so
            residuals = o.softmax(dim=1) - base.soft_targets(labels, o, self.task.label_smoothing)
            now, counts = gradient_variances(z, residuals, domains, batch.n_domains)
        mixed = memory * self.variances + (1 - memory) * now
        mixed = torch.where((counts > 0)[:, None, None], mixed, self.variances)
        self.variances.copy_(mixed.detach())
        v = mixed / (1 - memory)
        penalty = (v - v.mean(dim=0)).square().mean()
        weight = base.penalty_weight(self.config, progress, before=0.0)
        return base.penalised(task, weight, penalty, accuracy)


def gradient_variances(
    features: Tensor, residuals: Tensor, domains: Tensor, n_domains: int
) -> tuple[Tensor, Tensor]:
    """Returns the variances of the gradients of the classifier's weights and biases, `[domains,
    classes, features + 1]`, and how many images each domain has. `residuals` are the derivatives of
    the loss by the scores."""
    inputs = torch.cat([features, torch.ones_like(features[:, :1])], dim=1)
    member = functional.one_hot(domains, n_domains).to(residuals)
    counts = member.sum(dim=0)
    shares = member / counts.clamp_min(1)

    def means(left: Tensor, right: Tensor) -> Tensor:
        weighted = shares.unsqueeze(2) * left.unsqueeze(1)  # [images, domains, classes]
        return (weighted.flatten(1).T @ right).reshape(n_domains, -1, right.shape[1])

    return means(residuals.square(), inputs.square()) - means(residuals, inputs).square(), counts
