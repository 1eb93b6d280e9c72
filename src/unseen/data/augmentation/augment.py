"""Augmentation of whole batches, on the device that trains: one resampling, one colour matrix, and
what else is switched on, each a function of the image's key."""

import torch
from torch import Tensor

from unseen.config import AugmentSettings
from unseen.data.augmentation import randaugment, streams
from unseen.data.augmentation.amplitude_mix import amplitude_mix
from unseen.data.augmentation.colour import recolour
from unseen.data.augmentation.erasing import erase
from unseen.data.augmentation.geometry import resample
from unseen.data.augmentation.pixel_scale import PixelScale, scaled
from unseen.data.augmentation.random_convolution import random_convolution
from unseen.data.randomness import uniform


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
    draws = uniform(keys, 10, streams.CROP_AND_COLOUR)
    pixels = images.to(torch.float32)
    if settings.amplitude_mix > 0:
        assert partners is not None
        pixels = amplitude_mix(pixels, partners, keys, settings.amplitude_mix)
    choice = randaugment.choose(keys, settings) if settings.randaugment > 0 else None
    if settings.crop_scale < 1 or settings.flip > 0 or choice:
        moved = randaugment.affine(choice) if choice else None
        pixels = resample(pixels, draws[:, :5], settings, moved)
    if choice:
        pixels = randaugment.change_values(pixels, choice)
    if settings.jitter > 0 or settings.grayscale > 0:
        pixels = recolour(pixels, draws[:, 5:], settings)
    if settings.random_convolution > 0:
        mean = torch.tensor(scale.mean, device=pixels.device) * 255
        pixels = random_convolution(pixels, keys, settings.random_convolution, mean)
    if settings.erasing > 0:
        pixels = erase(pixels, keys, settings.erasing)
    return scaled(pixels, scale).contiguous(memory_format=torch.channels_last)
