"""Crop and flip as one affine map, sampled once."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from unseen.config import AugmentSettings


def crop_and_flip(pixels: Tensor, draws: Tensor, settings: AugmentSettings) -> Tensor:
    """A crop of random area and aspect (3/4 to 4/3), resampled to full size, maybe mirrored."""
    area = settings.crop_scale + (1 - settings.crop_scale) * draws[:, 0]
    log_aspect = (2 * draws[:, 1] - 1) * math.log(4 / 3)
    width = (area * log_aspect.exp()).sqrt().clamp(max=1)
    height = (area / log_aspect.exp()).sqrt().clamp(max=1)
    if settings.crop_scale == 1:
        width, height = torch.ones_like(width), torch.ones_like(height)
    mirror = torch.where(draws[:, 4] < settings.flip, -1.0, 1.0)
    rows, columns = (_centres(n, pixels.device) for n in pixels.shape[2:])
    x = torch.outer(width * mirror, columns) + ((1 - width) * (2 * draws[:, 2] - 1))[:, None]
    y = torch.outer(height, rows) + ((1 - height) * (2 * draws[:, 3] - 1))[:, None]
    shape = (len(pixels), len(rows), len(columns))
    grid = torch.stack([x[:, None, :].expand(shape), y[:, :, None].expand(shape)], dim=3)
    return functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def _centres(n: int, device: torch.device) -> Tensor:
    """Where the middles of n pixels lie between -1 and 1."""
    return (2 * torch.arange(n, device=device) + 1) / n - 1
