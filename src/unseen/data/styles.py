"""The look of another domain, the shapes of this one: amplitude mix of FACT (Xu et al., CVPR 2021)
on pixels, and MixStyle (Zhou et al., ICLR 2021) inside the network.

The Fourier amplitude of an image is mixed with that of a partner, (1 − λ) A(x) + λ A(x') with
λ ~ U(0, strength); the phase is kept. A partner is a training image of another training domain,
found from the image's key: whichever process makes the batch, it is the same one.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.data import randomness
from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.settings.experiment import AugmentSettings

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
    """Return what happens to the input of each stage that the settings name, in one step: MixStyle.

    Each image has the chance of its own; in Dassl, the authors' code, a whole batch has it or not.
    """
    if settings.mixstyle == 0:
        return {}
    all_keys, all_domains = gather(batch.keys), gather(batch.domains)
    order = all_keys.argsort()

    def mix(stream: int, x: Tensor, rows: Tensor | None) -> Tensor:
        """Mix the statistics of activations. Rows beyond those of the batch, which are of
        unlabelled target images, stay."""
        places = torch.arange(len(batch.keys), device=x.device)
        places = places if rows is None else places[rows]
        labelled, others = x[: len(places)], x[len(places) :]
        present = batch.keys.new_zeros(len(batch.keys))
        present[places] = 1
        present = gather(present).bool()
        draws = uniform(batch.keys[places], 2 + 2 * _TRIES, stream)
        share = symmetric_beta(draws[:, 2:], settings.mixstyle_alpha)
        share = torch.where(draws[:, 0] < settings.mixstyle, share, 1.0)
        allowed = present & (batch.domains[places][:, None] != all_domains)
        partners = order[nth_allowed(allowed[:, order], present[order], draws[:, 1])]
        before = statistics(labelled)
        table = before.new_zeros(len(batch.keys), *before.shape[1:])
        table[places] = before
        mixed = torch.lerp(gather(table)[partners], before, share[:, None, None].to(before))
        scale = mixed[:, 1] / before[:, 1]
        shift = mixed[:, 0] - before[:, 0] * scale
        changed = labelled * scale[:, :, None, None].to(x) + shift[:, :, None, None].to(x)
        return changed if len(others) == 0 else torch.cat([changed, others])

    streams = enumerate(settings.mixstyle_stages, randomness.FIRST_MIXSTYLE)
    return {stage: partial(mix, stream) for stream, stage in streams}


def statistics(x: Tensor) -> Tensor:
    """Return `[n, 2, channels]`, mean and deviation of each channel over its pixels; constants."""
    variance, mean = torch.var_mean(x.detach().float(), dim=(2, 3), correction=0)
    return torch.stack([mean, (variance + _EPSILON).sqrt()], dim=1)


def nth_allowed(allowed: Tensor, present: Tensor, draws: Tensor) -> Tensor:
    """Choose for each row of `allowed` one of its true columns, all alike; of those that are
    present, where none is allowed."""
    allowed = torch.where(allowed.any(dim=1, keepdim=True), allowed, present)
    number = (draws * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) <= number[:, None]).sum(dim=1)


def symmetric_beta(draws: Tensor, alpha: float) -> Tensor:
    """Turn each row of uniform numbers to one of Beta(α, α), α ≤ 1 (Jöhnk's method): the share of
    the first of a pair with u^(1/α) + v^(1/α) ≤ 1. The first such pair of the row counts."""
    u, v = ((1 - part).log() / alpha for part in draws.chunk(2, dim=1))
    fits = (u.exp() + v.exp() <= 1).to(u)
    return (u - v).sigmoid().gather(1, fits.argmax(dim=1, keepdim=True)).squeeze(1)


def amplitude_mix(pixels: Tensor, partners: Tensor, keys: Tensor, strength: float) -> Tensor:
    """Mix amplitudes of pixels from 0 to 255, which stay in that range."""
    share = strength * uniform(keys, 1, randomness.AMPLITUDE_MIX)[:, :, None, None]
    fourier: Any = torch.fft
    spectrum, other = fourier.rfft2(pixels), fourier.rfft2(partners.to(pixels.dtype))
    factor = 1 + share * (other.abs() / spectrum.abs().clamp_min(1e-6) - 1)
    mixed: Tensor = fourier.irfft2(spectrum * factor, s=pixels.shape[2:])
    return mixed.clamp_(0, 255)


def partner_rows(
    keys: Tensor, domains: np.ndarray, training_rows: Sequence[np.ndarray]
) -> np.ndarray:
    """Choose each image's partner, a dataset row: of another training domain, all alike, any of its
    training images. `domains` are positions in `training_rows`, -1 for images of none."""
    draws = uniform(keys.cpu(), 2, randomness.PARTNERS).double().numpy()
    first = np.where(domains < 0, 0, domains + 1)
    choices = len(training_rows) - (domains >= 0)
    other = (first + (draws[:, 0] * choices).astype(np.int64)) % len(training_rows)
    sizes = np.array([len(rows) for rows in training_rows])
    chosen = (draws[:, 1] * sizes[other]).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    return np.concatenate(training_rows)[starts[other] + chosen]
