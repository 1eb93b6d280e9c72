"""DMG: Domain-specific Masks for Generalization (Chattopadhyay, Balaji, Hoffman; ECCV 2020).

For each source domain d and each mask site there are logits m̃^d; m^d = σ(m̃^d) are the
probabilities that a unit stays on. Training samples a binary mask for each image from its own
domain's m^d and multiplies the activations with it; gradients pass through the sampling as if it
were m^d (straight-through). A soft IoU between the m^d (equation 1) keeps the domains' masks apart:

    L = CE + λ_O Σ_sites Σ_pairs sIoU(m^d, m^e),    sIoU(a, b) = a·b / Σ(a + b − a⊙b)

At test time units are scaled by m^d, and the scores for all source domains are averaged (section
2). With `prediction=routed` they are weighed instead by w_d, which is larger the nearer an image's
statistics at the first site are to those of the domain (Segu et al., arXiv 2011.12672):

    w_d = (1 − u) (1 / D_d) / Σ_e (1 / D_e) + u / S,   D_d = Σ_channels (μ − μ_d)² + (σ − σ_d)²
"""

import math
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.methods.base import DomainAware, Losses, ParameterGroup, Progress, Traits, losses
from unseen.networks.stages import Network
from unseen.settings.experiment import Names
from unseen.settings.ranges import LogUniform

Masks = dict[str, Tensor]
"""By site."""
PAPER_KEPT = math.log((1 + math.e) / 2)
"""The mean of σ over [0, 1): the share of units that the paper's start keeps, 62 %."""
_FIRST_MASK_STREAM = 1  # stream 0 of the images' random numbers belongs to augmentation


class DMG(DomainAware):
    class Config(DomainAware.Config):
        sites: Names = ()
        """Stages (or blocks inside them, as `layer4.2`) whose input is masked; empty: the paper's
        choice for the network."""
        gates: Literal["channel", "unit"] = "channel"
        """One gate per channel (the paper's choice for ResNets), or one per activation."""
        masks: Literal["domain", "shared", "dropout"] = "domain"
        """One mask for each domain; or, as controls, a single mask for all domains (nothing to keep
        apart), or dropout: every unit has the probability `start_kept` for good."""
        start_kept: float | None = Field(default=None, gt=0, lt=1)
        """The probability that a unit is kept at the start; empty: the paper's start, logits
        uniform in [0, 1), which keeps 62 %."""
        overlap_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0)
        """λ_O, the weight of the soft-IoU loss."""
        overlap_ramp: float = Field(default=0.0, ge=0, le=1)
        """Share of the run over which λ_O rises evenly to its value, so that masks learn what their
        domain needs before they are pushed apart; 0: it is there from the first step."""
        overlap_pairs: Literal["mean", "sum"] = "mean"
        """Over domain pairs: the mean (the authors' code) or the sum (the paper's formula)."""
        sparsity_weight: float = Field(default=0.0, ge=0)
        """Weight of the sum of all probabilities (the authors' sparsity penalty; off in the
        paper)."""
        mask_lr: Annotated[float | None, LogUniform(1e-4, 1e-1)] = Field(default=None, gt=0)
        """Learning rate of the logits; empty: the optimizer's."""
        mask_schedule: Literal["run", "constant"] = "run"
        """Whether the rate of the logits follows the schedule of the run, or stays the same, as in
        the authors' code."""
        mask_weight_decay: float | None = Field(default=None, ge=0)
        """Weight decay of the logits; empty: the optimizer's."""
        prediction: Literal["soft", "routed"] = "soft"
        """Scores averaged over the domains' soft masks (the paper), or with more weight for domains
        whose images have similar statistics at the first site."""
        uniform_share: float = Field(default=0.5, ge=0, le=1)
        """Of `prediction=routed`: how much of the weights is the same for all domains; 1: all."""

        @model_validator(mode="after")
        def _check(self) -> "DMG.Config":
            if self.masks != "domain" and self.prediction == "routed":
                raise ValueError(f"masks={self.masks} has one opinion; set prediction=soft")
            return self

    traits = Traits(stackable=True)
    config: Config

    def set_up(self) -> None:
        network, config, n_domains = self.network, self.config, len(self.task.domains)
        network.without_dropout()  # "turn dropout off while learning the domain-specific masks"
        self.sites = network.in_order(config.sites or network.mask_sites)
        masks = n_domains if config.masks == "domain" else 1
        kept = config.start_kept or (PAPER_KEPT if config.masks == "dropout" else None)
        start = kept and math.log(kept / (1 - kept))
        self.logits = nn.ParameterList()  # of each site, `[masks, units]`
        for site in self.sites:
            by_unit = config.gates == "unit"
            units = math.prod(network.input_shapes[site]) if by_unit else network.width(site)
            shape = (masks, units)
            # masks that start alike need no noise to part: each learns from its own images
            self.logits.append(torch.rand(shape) if start is None else torch.full(shape, start))
        self.logits.requires_grad_(config.masks != "dropout")
        if config.prediction == "routed":
            self.domain_statistics = DomainStatistics(network, self.sites[0], n_domains)

    def probs(self) -> Masks:
        """Returns m^d = σ(m̃^d), `[domains, units]` by site."""
        probs = (m.sigmoid().expand(len(self.task.domains), -1) for m in self.logits)
        return dict(zip(self.sites, probs, strict=True))

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        config, probs, masks = self.config, self.probs(), Masks()
        for stream, (site, m) in enumerate(probs.items(), _FIRST_MASK_STREAM):
            threshold = uniform(batch.keys, m.shape[1], stream)
            masks[site] = straight_through(m[batch.domains], threshold)
        trunk = self.network.run(batch.images, until=self.sites[0])
        if config.prediction == "routed":
            self.domain_statistics.observe(trunk, batch.domains)
        scores = self._masked(trunk, masks)
        task, accuracy = self.classification(scores, batch.labels)
        n_masks = len(self.logits[0])
        i, j = torch.triu_indices(n_masks, n_masks, 1, device=scores.device)
        overlap = torch.stack([soft_iou(m[i], m[j]).sum() for m in probs.values()]).sum()
        if config.overlap_pairs == "mean":  # over pairs; a sum over sites; of one mask zero
            overlap = overlap / max(1, len(i))
        sparsity = torch.stack([m.sum() for m in probs.values()]).sum()
        # λ_O rises evenly from the first step on; stacked runs have tensors
        rising = (torch.as_tensor(config.overlap_ramp) * progress.steps).clamp_min(1)
        weight = config.overlap_weight * ((progress.step + 1) / rising).clamp(max=1)
        loss = task + weight * overlap + config.sparsity_weight * sparsity
        kept = torch.stack([m.mean() for m in probs.values()]).mean()
        return losses(loss, task=task, overlap=overlap, kept=kept, accuracy=accuracy)

    def _masked(self, activations: Tensor, masks: Masks) -> Tensor:
        """Runs the task network: from the first site on, each site's input times its mask, which is
        `[units]` or `[images, units]`."""
        for site, until in zip(self.sites, (*self.sites[1:], None), strict=True):
            mask, shape = masks[site], self.network.input_shapes[site]
            if self.config.gates == "channel":
                tokens = self.network.channel_axis(site) == -1
                shape = (1, shape[-1]) if tokens else (shape[0], *[1] * (len(shape) - 1))
            gated = activations * mask.reshape(*mask.shape[:-1], *shape)
            activations = self.network.run(gated, since=site, until=until)
        return activations

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None:
            return super().predict(images)
        trunk = self.network.run(images, until=self.sites[0])
        return self._masked(trunk, {site: m[domain] for site, m in self.probs().items()})

    def opinions(self, images: Tensor) -> Tensor:
        return self._opinions(self.network.run(images, until=self.sites[0]))

    def _opinions(self, trunk: Tensor) -> Tensor:
        """Runs what follows the trunk, which ran once for all domains."""
        n_domains, n_images = len(self.task.domains), trunk.shape[0]
        # all domains in one batch: a larger product is a faster one
        by_domain = self.probs().items()
        masks = {site: m[:, None].expand(-1, n_images, -1).flatten(0, 1) for site, m in by_domain}
        return self._masked(torch.cat([trunk] * n_domains), masks).view(n_domains, n_images, -1)

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if self.config.prediction == "soft":
            return super().scores_and_opinions(images)
        trunk = self.network.run(images, until=self.sites[0])
        opinions, share = self._opinions(trunk), self.config.uniform_share
        closeness = self.domain_statistics.closeness(trunk.detach())  # no slope where σ is zero
        weights = (1 - share) * closeness + share / len(opinions)
        return (weights[..., None] * opinions).sum(dim=0), opinions

    def parameter_groups(self) -> list[ParameterGroup]:
        masks = ParameterGroup(params=list(self.logits), lr=self.config.mask_lr)
        masks["weight_decay"] = self.config.mask_weight_decay
        masks["scheduled"] = self.config.mask_schedule == "run"
        return [masks, *super().parameter_groups()]

    def statistics(self) -> dict[str, Any]:
        """Returns by site `kept`, the mean probability and the share above one half by domain, and
        `iou`, soft and hard, by pair of domains."""
        found: dict[str, Any] = {}
        for site, probs in self.probs().items():
            forms = {"soft": probs, "hard": (probs > 0.5).to(probs)}
            domains = list(enumerate(self.task.domains))
            found[site] = {
                "kept": {d: {f: m[n].mean().item() for f, m in forms.items()} for n, d in domains},
                "iou": {
                    f"{a}|{b}": {f: soft_iou(m[i], m[j]).item() for f, m in forms.items()}
                    for (i, a), (j, b) in combinations(domains, 2)
                },
            }
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns `mask.<site>`, the probability that a domain keeps a unit, `[domains, units]`."""
        return {f"mask.{site}": m.detach().cpu().numpy() for site, m in self.probs().items()}


def straight_through(probs: Tensor, threshold: Tensor) -> Tensor:
    """Returns ones where `threshold < probs`, zeros elsewhere; the gradient is that of `probs`."""
    hard = (threshold < probs).to(probs)
    return hard + (probs - probs.detach())


def soft_iou(a: Tensor, b: Tensor) -> Tensor:
    """Returns equation 1 for each row, a·b / Σ(a + b − a⊙b)."""
    shared = (a * b).sum(dim=-1)
    return shared / (a.sum(dim=-1) + b.sum(dim=-1) - shared).clamp_min(1e-6)


_DECAY = 0.99
"""Of the running means, for each step: they follow the network over a hundred steps or so."""
_SMALLEST = 1e-12
"""Where something is divided by: a domain that no image was seen of, an image at distance zero."""


class DomainStatistics(nn.Module):
    """Running means μ_d and σ_d of the statistics of each domain's images, for routing."""

    def __init__(self, network: Network, site: str, n_domains: int) -> None:
        super().__init__()
        self.channel_axis = network.channel_axis(site)
        self.sums = nn.Buffer(torch.zeros(n_domains, 2, network.width(site)))
        """`[domains, 2, channels]`: running means that grow from zero; divided by `seen`, they are
        what they should be from the first step on."""
        self.seen = nn.Buffer(torch.zeros(n_domains))
        """`[domains]`: the running mean of ones."""

    @torch.no_grad()
    def observe(self, activations: Tensor, domains: Tensor) -> None:
        """Takes in a batch of training; a domain without images in it stays as it is."""
        member = functional.one_hot(domains, len(self.seen)).to(self.sums)
        totals = torch.einsum("id,isc->dsc", member, self.of_images(activations))
        totals, counts = across_devices.mean(totals), across_devices.mean(member.sum(dim=0))
        rates = (1 - _DECAY) * (counts > 0).to(counts)
        means = totals / counts.clamp_min(_SMALLEST)[:, None, None]
        self.sums.lerp_(means, rates[:, None, None].expand_as(means))
        self.seen.lerp_(torch.ones_like(rates), rates)

    def of_images(self, activations: Tensor) -> Tensor:
        """Returns μ and σ over the positions of each image, `[images, 2, channels]`."""
        by_channel = activations.movedim(self.channel_axis, 1).to(self.sums.dtype)
        flat = by_channel.reshape(*by_channel.shape[:2], -1)
        mean = flat.mean(dim=-1)
        deviation = (flat - mean[..., None]).square().mean(dim=-1).sqrt()
        return torch.stack([mean, deviation], dim=1)

    def closeness(self, activations: Tensor) -> Tensor:
        """Returns 1 / D_d for each image, `[domains, images]`, scaled to add up to one over the
        domains."""
        known = self.sums / self.seen.clamp_min(_SMALLEST)[:, None, None]
        differences = known[:, None] - self.of_images(activations)
        inverse = 1 / differences.square().flatten(2).sum(dim=-1).clamp_min(_SMALLEST)
        return inverse / inverse.sum(dim=0)
