"""Amplitude mix of FACT (Xu et al., CVPR 2021): the look of another domain, the shapes of this one.

The Fourier amplitude of an image is mixed with that of a partner, (1 − λ) A(x) + λ A(x') with
λ ~ U(0, strength); the phase is kept. A partner is a training image of another training domain,
found from the image's key: whichever process makes the batch, it is the same one.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unseen.data.augmentation import streams
from unseen.data.randomness import uniform


def amplitude_mix(pixels: Tensor, partners: Tensor, keys: Tensor, strength: float) -> Tensor:
    """On pixels from 0 to 255, which stay in that range."""
    share = strength * uniform(keys, 1, streams.AMPLITUDE_MIX)[:, :, None, None]
    spectrum, other = _spectrum(pixels), _spectrum(partners.to(pixels.dtype))
    factor = 1 + share * (other.abs() / spectrum.abs().clamp_min(1e-6) - 1)
    size = pixels.shape[2:]
    mixed: Tensor = torch.fft.irfft2(spectrum * factor, s=size)  # pyright: ignore
    return mixed.clamp_(0, 255)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _spectrum(pixels: Tensor) -> Tensor:
    return torch.fft.rfft2(pixels)  # pyright: ignore


def partner_rows(
    keys: Tensor, domains: np.ndarray, training_rows: Sequence[np.ndarray]
) -> np.ndarray:
    """For each image the dataset row of its partner: another training domain, all alike, and any of
    its training images. `domains` are positions in `training_rows`, -1 for images of none."""
    draws = uniform(keys.cpu(), 2, streams.PARTNERS).double().numpy()
    own = np.where(domains < 0, 0, domains + 1)
    choices = len(training_rows) - (domains >= 0)
    other = (own + (draws[:, 0] * choices).astype(np.int64)) % len(training_rows)
    sizes = np.array([len(rows) for rows in training_rows])
    chosen = (draws[:, 1] * sizes[other]).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    return np.concatenate(training_rows)[starts[other] + chosen]
