"""Augmentation of whole batches, on the device that trains: one resampling, one colour matrix, and
what else is switched on, each a function of the image's key."""

from typing import NamedTuple

import torch
from torch import Tensor

from unseen.data import randomness, transforms
from unseen.data.randomness import uniform
from unseen.data.styles import amplitude_mix
from unseen.data.transforms import erase, random_convolution, recolour, resample
from unseen.settings.experiment import AugmentSettings


class PixelScale(NamedTuple):
    """What a network expects of its pixels, in units of [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def to_input(images: Tensor, scale: PixelScale) -> Tensor:
    """Pixels 0..255 (uint8) as a network wants them; no augmentation."""
    return scaled(images.to(torch.float32), scale)


def scaled(pixels: Tensor, scale: PixelScale) -> Tensor:
    """In place, from 0..255."""
    mean = torch.tensor(scale.mean, device=pixels.device) * 255
    std = torch.tensor(scale.std, device=pixels.device) * 255
    return pixels.sub_(mean[:, None, None]).div_(std[:, None, None])


def augment(
    images: Tensor,
    keys: Tensor,
    settings: AugmentSettings,
    scale: PixelScale,
    partners: Tensor | None = None,
) -> Tensor:
    """Each image changed at random, then scaled as the network wants it.

    `partners`: as many images of other training domains (`amplitude_mix.partner_rows`), which
    `settings.amplitude_mix` needs.
    """
    draws = uniform(keys, 10, randomness.CROP_AND_COLOUR)
    pixels = images.to(torch.float32)
    if settings.amplitude_mix > 0:
        assert partners is not None
        pixels = amplitude_mix(pixels, partners, keys, settings.amplitude_mix)
    choice = transforms.choose(keys, settings) if settings.randaugment > 0 else None
    if settings.crop_scale < 1 or settings.flip > 0 or choice:
        moved = transforms.affine(choice) if choice else None
        pixels = resample(pixels, draws[:, :5], settings, moved)
    if choice:
        pixels = transforms.change_values(pixels, choice)
    if settings.jitter > 0 or settings.grayscale > 0:
        pixels = recolour(pixels, draws[:, 5:], settings)
    if settings.random_convolution > 0:
        mean = torch.tensor(scale.mean, device=pixels.device) * 255
        pixels = random_convolution(pixels, keys, settings.random_convolution, mean)
    if settings.erasing > 0:
        pixels = erase(pixels, keys, settings.erasing)
    return scaled(pixels, scale).contiguous(memory_format=torch.channels_last)
