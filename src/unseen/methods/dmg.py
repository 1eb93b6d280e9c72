"""DMG: Domain-specific Masks for Generalization (Chattopadhyay, Balaji, Hoffman; ECCV 2020).

For each source domain d and each mask site there are logits m̃^d; m^d = σ(m̃^d) are the chances
that a unit stays on. Training samples a binary mask for each image from its own domain's m^d and
multiplies the activations with it; gradients pass through the sampling as if it were m^d
(straight-through). A soft IoU between the m^d (equation 1) keeps the domains' masks apart. At test
time units are scaled by m^d, and the scores for all source domains are averaged (section 2).
"""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from unseen.config import Names
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import uniform
from unseen.methods.base import Losses, Method, ParameterGroup, Progress, classification
from unseen.networks.stages import Network
from unseen.search import LogUniform

_MASK_STREAM = 1  # stream 0 of the images' random numbers belongs to augmentation


class DMG(Method):
    class Config(Method.Config):
        sites: Names = ()
        """Stages whose input is masked; empty: the paper's choice for the network."""
        gates: Literal["channel", "unit"] = "channel"
        """One gate per channel (the paper's choice for ResNets), or one per activation."""
        init: Literal["random_uniform"] | float = "random_uniform"
        """First values of the logits: uniform in [0, 1), or one number."""
        training_masks: Literal["sample", "greedy"] = "sample"
        """Bernoulli samples for each image, or units whose chance is above one half."""
        overlap_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0)
        """λ_O, the weight of the soft-IoU loss."""
        overlap_pairs: Literal["mean", "sum"] = "mean"
        """Over domain pairs: the mean (the authors' code) or the sum (the paper's formula)."""
        sparsity_weight: float = Field(default=0.0, ge=0)
        """Weight of the sum of all chances (the authors' sparsity penalty; off in the paper)."""
        mask_lr: Annotated[float | None, LogUniform(1e-4, 1e-1)] = Field(default=None, gt=0)
        """Learning rate of the logits; empty: the optimizer's."""
        mask_weight_decay: float | None = Field(default=None, ge=0)
        """Weight decay of the logits; empty: the optimizer's."""
        prediction: Literal["soft", "average_mask", "greedy"] = "soft"
        """Scores averaged over soft-scaled domains (the paper), one pass with the domains' average
        mask, or scores averaged over hard masks."""

    uses_domain = True
    stackable = True
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        network.without_dropout()  # "turn dropout off while learning the domain-specific masks"
        self.sites = network.in_order(config.sites or network.mask_sites)
        self.logits = nn.ParameterList(self._first_logits(site) for site in self.sites)

    def _first_logits(self, site: str) -> nn.Parameter:
        shape = self.network.input_shapes[site]
        width = self.network.width(site) if self.config.gates == "channel" else math.prod(shape)
        logits = torch.rand(len(self.task.domains), width)
        if self.config.init != "random_uniform":
            logits = torch.full_like(logits, self.config.init)
        return nn.Parameter(logits)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        def mask(place: int) -> Tensor:
            chances = self.logits[place].sigmoid()[batch.domains]
            if self.config.training_masks == "greedy":
                threshold = torch.full_like(chances, 0.5)
            else:
                threshold = uniform(batch.keys, chances.shape[1], _MASK_STREAM + place)
            return straight_through(chances, threshold)

        first = self.network.run(batch.images, until=self.sites[0])
        task_loss, accuracy = classification(self._masked(first, mask), batch.labels)
        overlap = self._overlap(task_loss)
        chances = [logits.sigmoid() for logits in self.logits]
        sparsity = torch.stack([c.sum() for c in chances]).sum()
        config = self.config
        return {
            "loss": task_loss + config.overlap_weight * overlap + config.sparsity_weight * sparsity,
            "task": task_loss.detach(),
            "overlap": overlap.detach(),
            "kept": torch.stack([c.mean() for c in chances]).mean().detach(),
            "accuracy": accuracy,
        }

    def _overlap(self, like: Tensor) -> Tensor:
        """Soft IoU summed over sites, mean or sum over domain pairs; zero for a single domain."""
        pairs = list(combinations(range(len(self.task.domains)), 2))
        if not pairs:
            return torch.zeros_like(like)
        total = torch.zeros_like(like)
        for logits in self.logits:
            chances = logits.sigmoid()
            total = total + torch.stack([soft_iou(chances[i], chances[j]) for i, j in pairs]).sum()
        return total / len(pairs) if self.config.overlap_pairs == "mean" else total

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None and self.averages_opinions:
            return self.opinions(images).mean(dim=0)
        first = self.network.run(images, until=self.sites[0])
        if domain is None:
            return self._masked(first, lambda place: self.logits[place].sigmoid().mean(dim=0))
        return self._masked(first, lambda place: self._test_mask(place, domain))

    @property
    def averages_opinions(self) -> bool:
        return self.config.prediction != "average_mask"

    def opinions(self, images: Tensor) -> Tensor:
        first = self.network.run(images, until=self.sites[0])  # the trunk, once for all domains
        n_domains, n_images = len(self.task.domains), first.shape[0]

        def mask(place: int) -> Tensor:
            masks = self._test_mask(place, slice(None))
            return masks.unsqueeze(1).expand(-1, n_images, -1).flatten(0, 1)

        # all domains in one batch: a larger product is a faster one
        scores = self._masked(torch.cat([first] * n_domains), mask)
        return scores.unflatten(0, (n_domains, n_images))

    def _test_mask(self, place: int, domain: int | slice) -> Tensor:
        chances = self.logits[place][domain].sigmoid()
        return (chances > 0.5).to(chances) if self.config.prediction == "greedy" else chances

    def _masked(self, activations: Tensor, mask: Callable[[int], Tensor]) -> Tensor:
        """The task network: from the first site on, each site's input times its mask."""
        for place, site in enumerate(self.sites):
            following = self.sites[place + 1] if place + 1 < len(self.sites) else None
            gated = activations * self._spread(mask(place), site)
            activations = self.network.run(gated, since=site, until=following)
        return activations

    def _spread(self, mask: Tensor, site: str) -> Tensor:
        """A mask `[width]` or `[images, width]` in the shape that multiplies activations there."""
        if self.config.gates == "unit":
            return mask.unflatten(-1, self.network.input_shapes[site])
        if self.network.channel_axis(site) == -1:
            return mask.unsqueeze(-2)
        return mask.reshape(*mask.shape, *[1] * (len(self.network.input_shapes[site]) - 1))

    def parameter_groups(self) -> list[ParameterGroup]:
        group: ParameterGroup = {"params": list(self.logits)}
        if self.config.mask_lr is not None:
            group["lr"] = self.config.mask_lr
        if self.config.mask_weight_decay is not None:
            group["weight_decay"] = self.config.mask_weight_decay
        return [group]

    def statistics(self) -> dict[str, Any]:
        """Kept shares by site and domain, IoUs by site and pair of domains."""
        return {
            site: mask_statistics(logits.detach().sigmoid(), self.task.domains)
            for site, logits in zip(self.sites, self.logits, strict=True)
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """`mask.<site>`: the chance that a training domain keeps a unit, `[domains, units]`."""
        sites = zip(self.sites, self.logits, strict=True)
        return {f"mask.{site}": logits.detach().sigmoid().cpu().numpy() for site, logits in sites}


def straight_through(chances: Tensor, threshold: Tensor) -> Tensor:
    """Ones where `threshold < chances`, zeros elsewhere; the gradient is that of `chances`."""
    hard = (threshold < chances).to(chances)
    return hard + (chances - chances.detach())


def soft_iou(a: Tensor, b: Tensor) -> Tensor:
    """Equation 1: a·b / Σ(a + b − a⊙b)."""
    shared = (a * b).sum()
    return shared / (a.sum() + b.sum() - shared).clamp_min(1e-6)


def mask_statistics(chances: Tensor, domains: tuple[str, ...]) -> dict[str, Any]:
    """`kept`: mean chance and share above one half by domain; `iou`: soft and hard by pair."""
    hard = (chances > 0.5).to(chances)
    pairs = {f"{a}|{b}": (i, j) for (i, a), (j, b) in combinations(enumerate(domains), 2)}
    return {
        "kept": {
            name: {"soft": chances[d].mean().item(), "hard": hard[d].mean().item()}
            for d, name in enumerate(domains)
        },
        "iou": {
            pair: {
                "soft": soft_iou(chances[i], chances[j]).item(),
                "hard": soft_iou(hard[i], hard[j]).item(),
            }
            for pair, (i, j) in pairs.items()
        },
    }
