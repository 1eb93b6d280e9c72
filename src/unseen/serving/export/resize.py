"""Pillow's antialiased bilinear resize as tensor operations, so that a graph can hold it.

Pillow resizes one axis after the other: each new pixel is a weighted mean of old ones, with weights
of 22 bits, rounded to 8 bits. In float64 all of this is exact, so the pixels are Pillow's own.
"""

import torch
from torch import Tensor

_PRECISION = 2.0**22


def to_squares(images: Tensor, size: int) -> Tensor:
    """uint8 `[images, height, width, 3]` as float32 `[images, 3, size, size]`, in steps of one.

    The same as `unseen.data.images.to_square`: width first, then height.
    """
    pixels = images.permute(0, 3, 1, 2).to(torch.float64)
    narrow = _resized(pixels, size)
    return _resized(narrow.transpose(2, 3), size).transpose(2, 3).to(torch.float32)


def _resized(pixels: Tensor, size: int) -> Tensor:
    """The last axis at another length, in whole numbers 0 to 255."""
    old = torch.arange(pixels.shape[-1], dtype=torch.float64, device=pixels.device)
    sums = pixels @ _weights(old, size)
    return ((sums + _PRECISION / 2) / _PRECISION).floor().clamp(0, 255)


def _weights(old: Tensor, size: int) -> Tensor:
    """`[old length, size]`: what each old pixel adds to each new one, in units of 2^-22."""
    length = old[-1] + 1
    scale = length / size
    reach = scale.clamp(min=1.0)  # larger pictures are averaged, smaller ones interpolated
    new = torch.arange(size, dtype=torch.float64, device=old.device)
    centre = (new + 0.5) * scale
    first = (centre - reach + 0.5).floor().clamp(min=0)
    end = torch.minimum((centre + reach + 0.5).floor(), length)
    place = old[:, None]
    tent = 1 - ((place - centre + 0.5) * (1 / reach)).abs()
    inside = (place >= first) & (place < end)
    weights = torch.where(inside, tent.clamp(min=0), 0.0)
    return (weights / weights.sum(dim=0) * _PRECISION + 0.5).floor()
