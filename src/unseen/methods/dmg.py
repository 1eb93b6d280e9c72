"""DMG: Domain-specific Masks for Generalization (Chattopadhyay, Balaji, Hoffman; ECCV 2020).

For each source domain d and each mask site there are logits m̃^d; m^d = σ(m̃^d) are the chances
that a unit stays on. Training samples a binary mask for each image from its own domain's m^d and
multiplies the activations with it; gradients pass through the sampling as if it were m^d
(straight-through). A soft IoU between the m^d (equation 1) keeps the domains' masks apart. At test
time units are scaled by m^d, and the scores for all source domains are averaged (section 2).
"""

import math
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from unseen.config import Names
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import uniform
from unseen.methods.base import Losses, Method, ParameterGroup, Progress, Traits
from unseen.methods.building_blocks import classification
from unseen.methods.kinds import DomainAware
from unseen.networks.stages import Network
from unseen.search import LogUniform

_FIRST_MASK_STREAM = 1  # stream 0 of the images' random numbers belongs to augmentation
Masks = dict[str, Tensor]


class DMG(DomainAware):
    class Config(Method.Config):
        sites: Names = ()
        """Stages whose input is masked; empty: the paper's choice for the network."""
        gates: Literal["channel", "unit"] = "channel"
        """One gate per channel (the paper's choice for ResNets), or one per activation."""
        init: Literal["random_uniform"] | float = "random_uniform"
        """Initial values of the logits: uniform in [0, 1), or one number."""
        training_masks: Literal["sample", "greedy"] = "sample"
        """Bernoulli samples for each image, or the units whose probability is above one half."""
        overlap_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0)
        """λ_O, the weight of the soft-IoU loss."""
        overlap_pairs: Literal["mean", "sum"] = "mean"
        """Over domain pairs: the mean (the authors' code) or the sum (the paper's formula)."""
        sparsity_weight: float = Field(default=0.0, ge=0)
        """Weight of the sum of all probabilities (the authors' sparsity penalty; off in the
        paper)."""
        mask_lr: Annotated[float | None, LogUniform(1e-4, 1e-1)] = Field(default=None, gt=0)
        """Learning rate of the logits; empty: the optimizer's."""
        mask_weight_decay: float | None = Field(default=None, ge=0)
        """Weight decay of the logits; empty: the optimizer's."""
        prediction: Literal["soft", "average_mask", "greedy"] = "soft"
        """Scores averaged over the domains' soft masks (the paper), one pass with the average mask,
        or scores averaged over hard masks."""

    traits = Traits(stackable=True)
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        network.without_dropout()  # "turn dropout off while learning the domain-specific masks"
        self.averages_opinions = config.prediction != "average_mask"
        self.sites = network.in_order(config.sites or network.mask_sites)
        self.logits = nn.ParameterList(self._first_logits(site) for site in self.sites)

    def _first_logits(self, site: str) -> Tensor:
        units = math.prod(self.network.input_shapes[site])
        width = self.network.width(site) if self.config.gates == "channel" else units
        if self.config.init == "random_uniform":
            return torch.rand(len(self.task.domains), width)
        return torch.full((len(self.task.domains), width), self.config.init)

    def chances(self) -> Masks:
        """m^d = σ(m̃^d), `[domains, units]` by site."""
        return {site: m.sigmoid() for site, m in zip(self.sites, self.logits, strict=True)}

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        chances, masks = self.chances(), Masks()
        for stream, (site, m) in enumerate(chances.items(), _FIRST_MASK_STREAM):
            greedy = self.config.training_masks == "greedy"
            threshold = 0.5 if greedy else uniform(batch.keys, m.shape[1], stream)
            masks[site] = straight_through(m[batch.domains], threshold)
        trunk = self.network.run(batch.images, until=self.sites[0])
        task_loss, accuracy = classification(self._masked(trunk, masks), batch.labels)
        overlap = self._overlap(chances)
        sparsity = torch.stack([m.sum() for m in chances.values()]).sum()
        config = self.config
        return {
            "loss": task_loss + config.overlap_weight * overlap + config.sparsity_weight * sparsity,
            "task": task_loss.detach(),
            "overlap": overlap.detach(),
            "kept": torch.stack([m.mean() for m in chances.values()]).mean().detach(),
            "accuracy": accuracy,
        }

    def _overlap(self, chances: Masks) -> Tensor:
        """Soft IoU summed over sites, mean or sum over domain pairs; zero for a single domain."""
        n_domains = len(self.task.domains)
        i, j = torch.triu_indices(n_domains, n_domains, 1, device=self.logits[0].device)
        total = torch.stack([soft_iou(m[i], m[j]).sum() for m in chances.values()]).sum()
        return total / max(1, len(i)) if self.config.overlap_pairs == "mean" else total

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None and self.averages_opinions:
            return super().predict(images)
        trunk = self.network.run(images, until=self.sites[0])
        return self._masked(trunk, self._test_masks(domain))

    def opinions(self, images: Tensor) -> Tensor:
        trunk = self.network.run(images, until=self.sites[0])  # once for all domains
        n_domains, n_images = len(self.task.domains), trunk.shape[0]
        # all domains in one batch: a larger product is a faster one
        by_domain = self._test_masks(slice(None)).items()
        masks = {site: m[:, None].expand(-1, n_images, -1).flatten(0, 1) for site, m in by_domain}
        scores = self._masked(torch.cat([trunk] * n_domains), masks)
        return scores.view(n_domains, n_images, -1)

    def _test_masks(self, domain: int | slice | None) -> Masks:
        """Of one domain or several; None: their average mask."""
        chances = self.chances().items()
        if domain is None:
            return {site: m.mean(dim=0) for site, m in chances}
        greedy = self.config.prediction == "greedy"
        return {site: (m[domain] > 0.5).to(m) if greedy else m[domain] for site, m in chances}

    def _masked(self, activations: Tensor, masks: Masks) -> Tensor:
        """The task network: from the first site on, each site's input times its mask."""
        for site, until in zip(self.sites, (*self.sites[1:], None), strict=True):
            gated = activations * self._spread(masks[site], site)
            activations = self.network.run(gated, since=site, until=until)
        return activations

    def _spread(self, mask: Tensor, site: str) -> Tensor:
        """A mask `[width]` or `[images, width]` in the shape that multiplies activations there."""
        shape = self.network.input_shapes[site]
        if self.config.gates == "unit":
            return mask.reshape(*mask.shape[:-1], *shape)
        if self.network.channel_axis(site) == -1:
            return mask.unsqueeze(-2)
        return mask.reshape(*mask.shape, *[1] * (len(shape) - 1))

    def parameter_groups(self) -> list[ParameterGroup]:
        masks = ParameterGroup(params=list(self.logits), lr=self.config.mask_lr)
        masks["weight_decay"] = self.config.mask_weight_decay
        return [masks, *super().parameter_groups()]

    def statistics(self) -> dict[str, Any]:
        """Kept shares by site and domain, IoUs by site and pair of domains."""
        return {s: mask_statistics(m, self.task.domains) for s, m in self.chances().items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """`mask.<site>`: the chance that a training domain keeps a unit, `[domains, units]`."""
        return {f"mask.{site}": m.detach().cpu().numpy() for site, m in self.chances().items()}


def straight_through(chances: Tensor, threshold: Tensor | float) -> Tensor:
    """Ones where `threshold < chances`, zeros elsewhere; the gradient is that of `chances`."""
    hard = (threshold < chances).to(chances)
    return hard + (chances - chances.detach())


def soft_iou(a: Tensor, b: Tensor) -> Tensor:
    """Equation 1 for each row: a·b / Σ(a + b − a⊙b)."""
    shared = (a * b).sum(dim=-1)
    return shared / (a.sum(dim=-1) + b.sum(dim=-1) - shared).clamp_min(1e-6)


def mask_statistics(chances: Tensor, domains: tuple[str, ...]) -> dict[str, Any]:
    """`kept`: mean chance and share above one half by domain; `iou`: soft and hard by pair."""
    forms = {"soft": chances, "hard": (chances > 0.5).to(chances)}
    kept = {d: {f: m[n].mean().item() for f, m in forms.items()} for n, d in enumerate(domains)}
    iou = {
        f"{a}|{b}": {f: soft_iou(m[i], m[j]).item() for f, m in forms.items()}
        for (i, a), (j, b) in combinations(enumerate(domains), 2)
    }
    return {"kept": kept, "iou": iou}
