"""Augmentation of whole batches, on the device that trains: one resampling, one colour matrix."""

import torch
from torch import Tensor

from unseen.config import AugmentSettings
from unseen.data.augmentation.colour import recolour
from unseen.data.augmentation.geometry import crop_and_flip
from unseen.data.augmentation.pixel_scale import PixelScale, scaled
from unseen.data.randomness import uniform


def augment(images: Tensor, keys: Tensor, settings: AugmentSettings, scale: PixelScale) -> Tensor:
    """Random crop, flip and colour for each image, then the network's scaling."""
    draws = uniform(keys, 10, stream=0)
    pixels = images.to(torch.float32)
    if settings.crop_scale < 1 or settings.flip > 0:
        pixels = crop_and_flip(pixels, draws[:, :5], settings)
    if settings.jitter > 0 or settings.grayscale > 0:
        pixels = recolour(pixels, draws[:, 5:], settings)
    return scaled(pixels, scale).contiguous(memory_format=torch.channels_last)
