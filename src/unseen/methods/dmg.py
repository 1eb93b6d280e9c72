"""DMG: Domain-specific Masks for Generalization (Chattopadhyay, Balaji, Hoffman; ECCV 2020).

For each source domain d and each mask site there are logits m̃^d; m^d = σ(m̃^d) are the chances
that a unit stays on. Training samples a binary mask for each image from its own domain's m^d and
multiplies the activations with it; gradients pass through the sampling as if it were m^d
(straight-through). A soft IoU between the m^d (equation 1) keeps the domains' masks apart. At test
time units are scaled by m^d, and the scores for all source domains are averaged (section 2).
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import uniform
from unseen.methods.base import DomainAware, Losses, Method, ParameterGroup, Progress, Traits
from unseen.methods.shared import classification
from unseen.networks.stages import Network
from unseen.settings.base import Formerly, LogUniform
from unseen.settings.experiment import NEUTRAL_AT_DEFAULT, Names

Masks = dict[str, Tensor]
"""By site."""
PAPER_KEPT = math.log((1 + math.e) / 2)
"""The mean of σ over [0, 1): the share of units that the paper's start keeps, 62 %."""


def gates_at(network: Network, site: str, gates: str) -> int:
    """How many gates a mask has at a site."""
    return network.width(site) if gates == "channel" else math.prod(network.input_shapes[site])


def spread(mask: Tensor, network: Network, site: str, gates: str) -> Tensor:
    """A mask `[gates]` or `[images, gates]` in the shape that multiplies activations at a site."""
    shape = network.input_shapes[site]
    if gates == "unit":
        return mask.reshape(*mask.shape[:-1], *shape)
    if network.channel_axis(site) == -1:
        return mask.unsqueeze(-2)
    return mask.reshape(*mask.shape, *[1] * (len(shape) - 1))


def first_logits(kept: float | None, masks: int, units: int) -> Tensor:
    """`[masks, units]`: all at the logit of one chance, or uniform in [0, 1) as the paper has them.

    Masks that start alike need no noise to part: each gets the gradients of its own images.
    """
    if kept is None:
        return torch.rand(masks, units)
    return torch.full((masks, units), math.log(kept / (1 - kept)))


def start_from_logit(settings: Any) -> Any:
    """Settings with `start_kept` in place of its older form `init`, the logit (or the word
    `random_uniform`), which saved runs have."""
    if not isinstance(settings, Mapping) or "init" not in settings:
        return cast(Any, settings)
    found = dict(cast(Mapping[str, Any], settings))
    init = found.pop("init")
    if found.get("start_kept") is not None:
        raise ValueError("init is the older form of start_kept; give start_kept alone")
    if init != "random_uniform":
        try:
            found["start_kept"] = 1 / (1 + math.exp(-float(init)))
        except (TypeError, ValueError):
            raise ValueError(f"init should be a logit or random_uniform, got {init!r}") from None
    return found


def straight_through(chances: Tensor, threshold: Tensor | float) -> Tensor:
    """Ones where `threshold < chances`, zeros elsewhere; the gradient is that of `chances`."""
    hard = (threshold < chances).to(chances)
    return hard + (chances - chances.detach())


def soft_iou(a: Tensor, b: Tensor) -> Tensor:
    """Equation 1 for each row: a·b / Σ(a + b − a⊙b)."""
    shared = (a * b).sum(dim=-1)
    return shared / (a.sum(dim=-1) + b.sum(dim=-1) - shared).clamp_min(1e-6)


def mask_overlap(chances: Masks, n_masks: int, pairs_add_up: bool) -> Tensor:
    """Soft IoU summed over sites, mean or sum over pairs of the first masks; zero for one mask."""
    device = next(iter(chances.values())).device
    i, j = torch.triu_indices(n_masks, n_masks, 1, device=device)
    total = torch.stack([soft_iou(m[i], m[j]).sum() for m in chances.values()]).sum()
    return total if pairs_add_up else total / max(1, len(i))


def risen(ramp: float, progress: Progress) -> Tensor:
    """The share of λ_O that counts at a step: it rises evenly from the first step on, and is one
    after this share of the run."""
    length = (torch.as_tensor(ramp) * progress.steps).clamp_min(1)  # stacked runs have tensors
    return ((progress.step + 1) / length).clamp(max=1)


def mask_statistics(chances: Tensor, domains: tuple[str, ...]) -> dict[str, Any]:
    """`kept`: mean chance and share above one half by domain; `iou`: soft and hard by pair."""
    forms = {"soft": chances, "hard": (chances > 0.5).to(chances)}
    kept = {d: {f: m[n].mean().item() for f, m in forms.items()} for n, d in enumerate(domains)}
    iou = {
        f"{a}|{b}": {f: soft_iou(m[i], m[j]).item() for f, m in forms.items()}
        for (i, a), (j, b) in combinations(enumerate(domains), 2)
    }
    return {"kept": kept, "iou": iou}


_DECAY = 0.99
"""Of the running means, for each step: they follow the network over a hundred steps or so."""
_SMALLEST = 1e-12
"""Where something is divided by: a domain that no image was seen of, an image at distance zero."""


class DomainStatistics(nn.Module):
    """Of each domain, the running mean of its images' μ and σ."""

    sums: Tensor
    """`[domains, 2, channels]`: running means that grow from zero; divided by `seen`, they are what
    they should be from the first step on."""
    seen: Tensor
    """`[domains]`: the running mean of ones."""

    def __init__(self, network: Network, site: str, n_domains: int) -> None:
        super().__init__()
        self.channel_axis = network.channel_axis(site)
        self.register_buffer("sums", torch.zeros(n_domains, 2, network.width(site)))
        self.register_buffer("seen", torch.zeros(n_domains))

    @torch.no_grad()
    def observe(self, activations: Tensor, domains: Tensor) -> None:
        """Take in a batch of training; a domain without images in it stays as it is."""
        member = functional.one_hot(domains, len(self.seen)).to(self.sums)
        totals = torch.einsum("id,isc->dsc", member, self.of_images(activations))
        totals, counts = across_devices.mean(totals), across_devices.mean(member.sum(dim=0))
        rates = (1 - _DECAY) * (counts > 0).to(counts)
        means = totals / counts.clamp_min(_SMALLEST)[:, None, None]
        self.sums.lerp_(means, rates[:, None, None].expand_as(means))
        self.seen.lerp_(torch.ones_like(rates), rates)

    def of_images(self, activations: Tensor) -> Tensor:
        """μ and σ over the positions of each image, `[images, 2, channels]`."""
        by_channel = activations.movedim(self.channel_axis, 1).to(self.sums.dtype)
        flat = by_channel.reshape(by_channel.shape[0], by_channel.shape[1], -1)
        mean = flat.mean(dim=-1)
        deviation = (flat - mean[..., None]).square().mean(dim=-1).sqrt()
        return torch.stack([mean, deviation], dim=1)

    def closeness(self, activations: Tensor) -> Tensor:
        """w_d for each image, `[domains, images]`; they add up to one over the domains."""
        known = self.sums / self.seen.clamp_min(_SMALLEST)[:, None, None]
        apart = known[:, None] - self.of_images(activations)
        inverse = 1 / apart.square().flatten(2).sum(dim=-1).clamp_min(_SMALLEST)
        return inverse / inverse.sum(dim=0)


_FIRST_MASK_STREAM = 1  # stream 0 of the images' random numbers belongs to augmentation


class DMG(DomainAware):
    class Config(Method.Config):
        sites: Names = ()
        """Stages (or blocks inside them, as `layer4.2`) whose input is masked; empty: the paper's
        choice for the network."""
        gates: Literal["channel", "unit"] = "channel"
        """One gate per channel (the paper's choice for ResNets), or one per activation."""
        masks: Annotated[Literal["domain", "shared", "dropout"], NEUTRAL_AT_DEFAULT] = "domain"
        """One mask for each domain; or, as controls, a single mask for all domains (nothing to keep
        apart), or dropout: every unit has the chance `start_kept` for good."""
        start_kept: Annotated[float | None, Formerly("init", "random_uniform")] = Field(
            default=None, gt=0, lt=1
        )
        """The chance that a unit is kept at the start; empty: the paper's start, logits uniform in
        [0, 1), which keeps 62 %."""
        training_masks: Literal["sample", "greedy"] = "sample"
        """Bernoulli samples for each image, or the units whose probability is above one half."""
        overlap_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0)
        """λ_O, the weight of the soft-IoU loss."""
        overlap_ramp: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.0, ge=0, le=1)
        """Share of the run over which λ_O rises evenly to its value, so that masks learn what their
        domain needs before they are pushed apart; 0: it is there from the first step."""
        overlap_pairs: Literal["mean", "sum"] = "mean"
        """Over domain pairs: the mean (the authors' code) or the sum (the paper's formula)."""
        sparsity_weight: float = Field(default=0.0, ge=0)
        """Weight of the sum of all probabilities (the authors' sparsity penalty; off in the
        paper)."""
        mask_lr: Annotated[float | None, LogUniform(1e-4, 1e-1)] = Field(default=None, gt=0)
        """Learning rate of the logits; empty: the optimizer's."""
        mask_schedule: Annotated[Literal["run", "constant"], NEUTRAL_AT_DEFAULT] = "run"
        """Whether the rate of the logits follows the schedule of the run, or stays the same, as in
        the authors' code."""
        mask_weight_decay: float | None = Field(default=None, ge=0)
        """Weight decay of the logits; empty: the optimizer's."""
        prediction: Literal["soft", "average_mask", "greedy", "routed"] = "soft"
        """Scores averaged over the domains' soft masks (the paper), one pass with the average mask,
        scores averaged over hard masks, or over soft masks with more weight for domains whose
        images have similar statistics at the first site."""
        uniform_share: Annotated[float, NEUTRAL_AT_DEFAULT] = Field(default=0.5, ge=0, le=1)
        """Of `prediction=routed`: how much of the weights is the same for all domains; 1: all."""

        _init = model_validator(mode="before")(start_from_logit)

        @model_validator(mode="after")
        def _check(self) -> "DMG.Config":
            if self.masks == "dropout" and self.training_masks == "greedy":
                raise ValueError("masks=dropout samples its masks; set training_masks=sample")
            if self.masks != "domain" and self.prediction == "routed":
                raise ValueError(f"masks={self.masks} has one opinion; set prediction=soft")
            return self

    traits = Traits(stackable=True)
    config: Config

    def __init__(self, network: Network, task: Task, config: Config) -> None:
        super().__init__(network, task, config)
        network.without_dropout()  # "turn dropout off while learning the domain-specific masks"
        self.averages_opinions = config.prediction in ("soft", "greedy")
        self.sites = network.in_order(config.sites or network.mask_sites)
        n_masks = len(task.domains) if config.masks == "domain" else 1
        kept = config.start_kept or (PAPER_KEPT if config.masks == "dropout" else None)
        units = (gates_at(network, site, config.gates) for site in self.sites)
        self.logits = nn.ParameterList(first_logits(kept, n_masks, n) for n in units)
        self.logits.requires_grad_(config.masks != "dropout")
        if config.prediction == "routed":
            self.domain_statistics = DomainStatistics(network, self.sites[0], len(task.domains))

    def chances(self) -> Masks:
        """m^d = σ(m̃^d), `[domains, units]` by site."""
        chances = (m.sigmoid().expand(len(self.task.domains), -1) for m in self.logits)
        return dict(zip(self.sites, chances, strict=True))

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        chances, masks = self.chances(), Masks()
        for stream, (site, m) in enumerate(chances.items(), _FIRST_MASK_STREAM):
            greedy = self.config.training_masks == "greedy"
            threshold = 0.5 if greedy else uniform(batch.keys, m.shape[1], stream)
            masks[site] = straight_through(m[batch.domains], threshold)
        trunk = self.network.run(batch.images, until=self.sites[0])
        if self.config.prediction == "routed":
            self.domain_statistics.observe(trunk, batch.domains)
        scores = self._masked(trunk, masks)
        task_loss, accuracy = classification(scores, batch.labels, self.task.label_smoothing)
        overlap = mask_overlap(chances, len(self.logits[0]), self.config.overlap_pairs == "sum")
        sparsity = torch.stack([m.sum() for m in chances.values()]).sum()
        weight = self.config.overlap_weight * risen(self.config.overlap_ramp, progress)
        return {
            "loss": task_loss + weight * overlap + self.config.sparsity_weight * sparsity,
            "task": task_loss.detach(),
            "overlap": overlap.detach(),
            "kept": torch.stack([m.mean() for m in chances.values()]).mean().detach(),
            "accuracy": accuracy,
        }

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None and self.config.prediction != "average_mask":
            return self.scores_and_opinions(images)[0]
        trunk = self.network.run(images, until=self.sites[0])
        return self._masked(trunk, self._test_masks(domain))

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        if self.config.prediction != "routed":
            return super().scores_and_opinions(images)
        trunk = self.network.run(images, until=self.sites[0])
        opinions, share = self._opinions(trunk), self.config.uniform_share
        weights = (1 - share) * self.domain_statistics.closeness(trunk) + share / len(opinions)
        return (weights[..., None] * opinions).sum(dim=0), opinions

    def opinions(self, images: Tensor) -> Tensor:
        return self._opinions(self.network.run(images, until=self.sites[0]))

    def _opinions(self, trunk: Tensor) -> Tensor:
        """The trunk ran once for all domains."""
        n_domains, n_images = len(self.task.domains), trunk.shape[0]
        # all domains in one batch: a larger product is a faster one
        by_domain = self._test_masks(slice(None)).items()
        masks = {site: m[:, None].expand(-1, n_images, -1).flatten(0, 1) for site, m in by_domain}
        return self._masked(torch.cat([trunk] * n_domains), masks).view(n_domains, n_images, -1)

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
            gated = activations * spread(masks[site], self.network, site, self.config.gates)
            activations = self.network.run(gated, since=site, until=until)
        return activations

    def parameter_groups(self) -> list[ParameterGroup]:
        masks = ParameterGroup(params=list(self.logits), lr=self.config.mask_lr)
        masks["weight_decay"] = self.config.mask_weight_decay
        masks["scheduled"] = self.config.mask_schedule == "run"
        return [masks, *super().parameter_groups()]

    def statistics(self) -> dict[str, Any]:
        """Kept shares by site and domain, IoUs by site and pair of domains."""
        return {s: mask_statistics(m, self.task.domains) for s, m in self.chances().items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """`mask.<site>`: the chance that a training domain keeps a unit, `[domains, units]`."""
        return {f"mask.{site}": m.detach().cpu().numpy() for site, m in self.chances().items()}
