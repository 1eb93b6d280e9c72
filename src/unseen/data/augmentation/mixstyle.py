"""MixStyle: Domain Generalization with MixStyle (Zhou et al., ICLR 2021).

At the input of a stage each chosen image keeps its normalised activations x̂ = (x − μ) / σ and gets
channel statistics mixed with those of another image of the batch: σ_mix x̂ + μ_mix, with
σ_mix = λσ + (1 − λ)σ', μ_mix = λμ + (1 − λ)μ' and λ ~ Beta(α, α). Statistics are constants.

A partner is an image of another domain if there is one. It is found from the images' keys among the
whole batch, whose statistics all devices share: the result is the same on any number of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unseen.config import AugmentSettings
from unseen.data.augmentation import streams
from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform

Gather = Callable[[Tensor], Tensor]
"""The rows of all devices, from those of each."""
Change = Callable[[Tensor, Tensor | None], Tensor]
"""Activations, and which rows of the batch they belong to (None: all), to other ones."""

_TRIES = 16
"""Pairs of numbers for one λ; at α = 1, the largest, half of the pairs serve."""
_EPSILON = 1e-6


def style_changes(
    settings: AugmentSettings, batch: DomainBatch, gather: Gather
) -> dict[str, Change]:
    """What happens to the input of each stage that the settings name, in one training step."""
    if settings.mixstyle == 0:
        return {}
    whole = Whole(gather, gather(batch.keys), gather(batch.domains))
    return {
        stage: StyleMix(settings, batch.keys, batch.domains, whole, streams.FIRST_MIXSTYLE + number)
        for number, stage in enumerate(settings.mixstyle_stages)
    }


@dataclass(frozen=True)
class Whole:
    """The batch on all devices together."""

    gather: Gather
    keys: Tensor
    domains: Tensor


@dataclass(frozen=True)
class StyleMix:
    """Mixes at the input of one stage."""

    settings: AugmentSettings
    keys: Tensor
    domains: Tensor
    whole: Whole
    stream: int

    def __call__(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Rows beyond those of the batch, which are of unlabelled target images, stay."""
        places = torch.arange(len(self.keys), device=x.device)
        places = places if rows is None else places[rows]
        own, others = x[: len(places)], x[len(places) :]
        found = statistics(own)
        own_share, partners = self._draw(places)
        table = found.new_zeros(len(self.keys), *found.shape[1:])
        table[places] = found
        mixed = torch.lerp(
            self.whole.gather(table)[partners], found, own_share[:, None, None].to(found)
        )
        scale = mixed[:, 1] / found[:, 1]
        shift = mixed[:, 0] - found[:, 0] * scale
        changed = own * scale[:, :, None, None].to(x) + shift[:, :, None, None].to(x)
        return changed if len(others) == 0 else torch.cat([changed, others])

    def _draw(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """λ (one where an image is left alone) and the partner in the whole batch, for each."""
        here = self.keys.new_zeros(len(self.keys))
        here[places] = 1
        present = self.whole.gather(here).bool()
        keys, domains = self.keys[places], self.domains[places]
        draws = uniform(keys, 2 + 2 * _TRIES, self.stream)
        share = symmetric_beta(draws[:, 2:], self.settings.mixstyle_alpha)
        share = torch.where(draws[:, 0] < self.settings.mixstyle, share, 1.0)
        order = self.whole.keys.argsort()
        allowed = present & (domains[:, None] != self.whole.domains)
        return share, order[nth_allowed(allowed[:, order], present[order], draws[:, 1])]


def statistics(x: Tensor) -> Tensor:
    """`[n, 2, channels]`: mean and deviation of each channel over its pixels; constants."""
    variance, mean = torch.var_mean(x.detach().float(), dim=(2, 3), correction=0)
    return torch.stack([mean, (variance + _EPSILON).sqrt()], dim=1)


def nth_allowed(allowed: Tensor, present: Tensor, draws: Tensor) -> Tensor:
    """For each row of `allowed` one of its true columns, all alike; of those that are present,
    where none is allowed."""
    allowed = torch.where(allowed.any(dim=1, keepdim=True), allowed, present)
    number = (draws * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) <= number[:, None]).sum(dim=1)


def symmetric_beta(draws: Tensor, alpha: float) -> Tensor:
    """One number of Beta(α, α), α ≤ 1, for each row of uniform ones (Jöhnk's method): of a pair
    with u^(1/α) + v^(1/α) ≤ 1 the share of the first. The first such pair of the row counts."""
    u, v = ((1 - part).log() / alpha for part in draws.chunk(2, dim=1))
    fits = (u.exp() + v.exp() <= 1).to(u)
    return (u - v).sigmoid().gather(1, fits.argmax(dim=1, keepdim=True)).squeeze(1)
