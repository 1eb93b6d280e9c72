"""Crop, flip and whatever else moves pixels as one affine map, sampled once."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseen.config import AugmentSettings


class Affine(NamedTuple):
    """For each image where a point of the result, between -1 and 1, comes from."""

    matrix: Tensor
    """`[n, 2, 2]`, for (x, y)."""
    shift: Tensor
    """`[n, 2]`."""


def resample(
    pixels: Tensor, draws: Tensor, settings: AugmentSettings, moved: Affine | None
) -> Tensor:
    """A crop of random area and aspect (3/4 to 4/3), resampled to full size, maybe mirrored; and
    `moved` within it, where colours from outside the crop come in."""
    width, height = _crop_size(draws, settings)
    mirror = torch.where(draws[:, 4] < settings.flip, -1.0, 1.0)
    left, top = (1 - width) * (2 * draws[:, 2] - 1), (1 - height) * (2 * draws[:, 3] - 1)
    rows, columns = (_centres(n, pixels.device) for n in pixels.shape[2:])
    shape = (len(pixels), len(rows), len(columns))
    if moved is None:
        x = (torch.outer(width * mirror, columns) + left[:, None])[:, None, :].expand(shape)
        y = (torch.outer(height, rows) + top[:, None])[:, :, None].expand(shape)
        grid = torch.stack([x, y], dim=3)
    else:
        size = torch.stack([width * mirror, height], dim=1)
        matrix = size[:, :, None] * moved.matrix
        offset = size * moved.shift + torch.stack([left, top], dim=1)
        points = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).flatten(1)
        grid = torch.baddbmm(offset[:, :, None], matrix, points.expand(len(pixels), -1, -1))
        grid = grid.transpose(1, 2).reshape(*shape, 2)
    return functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def _crop_size(draws: Tensor, settings: AugmentSettings) -> tuple[Tensor, Tensor]:
    """Width and height as shares of the image's."""
    if settings.crop_scale == 1:
        return torch.ones_like(draws[:, 0]), torch.ones_like(draws[:, 0])
    area = settings.crop_scale + (1 - settings.crop_scale) * draws[:, 0]
    log_aspect = (2 * draws[:, 1] - 1) * math.log(4 / 3)
    width = (area * log_aspect.exp()).sqrt().clamp(max=1)
    height = (area / log_aspect.exp()).sqrt().clamp(max=1)
    return width, height


def _centres(n: int, device: torch.device) -> Tensor:
    """Where the middles of n pixels lie between -1 and 1."""
    return (2 * torch.arange(n, device=device) + 1) / n - 1
