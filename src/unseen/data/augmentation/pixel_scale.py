"""Pixels as a network wants them."""

from typing import NamedTuple

import torch
from torch import Tensor


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
