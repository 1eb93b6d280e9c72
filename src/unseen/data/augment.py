"""Augmentation of whole batches, on the device that trains: one resampling, one colour matrix.

Crop and flip are one affine map, sampled once. Brightness, saturation, hue and grayscale are one
3×3 matrix per image and contrast one offset, so colour costs a single small matrix product.
Hue turns the colour circle in YIQ space, which is linear; torchvision's HSV detour differs by
little and costs most of the usual transform's time.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseen.config import AugmentSettings
from unseen.data.randomness import uniform

_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


class PixelScale(NamedTuple):
    """What a network expects of its pixels, in units of [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def to_input(images: Tensor, scale: PixelScale) -> Tensor:
    """Pixels 0..255 (uint8) as a network wants them; no augmentation."""
    return _scaled(images.to(torch.float32), scale)


def augment(images: Tensor, keys: Tensor, settings: AugmentSettings, scale: PixelScale) -> Tensor:
    """Random crop, flip and colour for each image, then the network's scaling."""
    draws = uniform(keys, 10, stream=0)
    pixels = images.to(torch.float32)
    if settings.crop_scale < 1 or settings.flip > 0:
        pixels = _crop_and_flip(pixels, draws[:, :5], settings)
    if settings.jitter > 0 or settings.grayscale > 0:
        pixels = _recolour(pixels, draws[:, 5:], settings)
    return _scaled(pixels, scale).contiguous(memory_format=torch.channels_last)


def _scaled(pixels: Tensor, scale: PixelScale) -> Tensor:
    """In place."""
    mean = torch.tensor(scale.mean, device=pixels.device) * 255
    std = torch.tensor(scale.std, device=pixels.device) * 255
    return pixels.sub_(mean[:, None, None]).div_(std[:, None, None])


def _crop_and_flip(pixels: Tensor, draws: Tensor, settings: AugmentSettings) -> Tensor:
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


def _recolour(pixels: Tensor, draws: Tensor, settings: AugmentSettings) -> Tensor:
    """One matrix and one offset per image, then back into 0..255."""
    strength = settings.jitter * (2 * draws[:, :4] - 1)
    brightness, contrast, saturation = (1 + strength[:, i] for i in range(3))
    matrix = _hue_matrix(strength[:, 3]) * brightness[:, None, None]
    luma = torch.tensor(_TO_YIQ[0], device=pixels.device)
    grey = luma.expand(3, 3)
    saturation = torch.where(draws[:, 4] < settings.grayscale, 0.0, saturation)[:, None, None]
    eye = torch.eye(3, device=pixels.device)
    matrix = (saturation * eye + (1 - saturation) * grey) @ matrix
    centre = (matrix @ pixels.mean(dim=(2, 3))[:, :, None]).squeeze(2) @ luma
    offset = ((1 - contrast) * centre)[:, None]
    matrix = matrix * contrast[:, None, None]
    coloured = torch.baddbmm(offset[:, :, None], matrix, pixels.flatten(2))
    return coloured.clamp_(0, 255).view(pixels.shape)


def _hue_matrix(turns: Tensor) -> Tensor:
    """A turn of the colour circle (1 is a full turn) that leaves brightness as it is."""
    angle = turns * 2 * math.pi
    parts = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], dim=1)
    return (parts @ _hue_parts(turns.device)).view(-1, 3, 3)


@cache
def _hue_parts(device: torch.device) -> Tensor:
    """`[3, 9]`: what a turn of the colour circle leaves, and what goes with its cosine and sine."""
    to_yiq = torch.tensor(_TO_YIQ, dtype=torch.float64)
    colour = torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    quarter = torch.zeros_like(colour)
    quarter[2, 1], quarter[1, 2] = 1, -1
    parts = torch.stack([torch.eye(3, dtype=torch.float64) - colour, colour, quarter])
    return (torch.inverse(to_yiq) @ parts @ to_yiq).flatten(1).to(device, torch.float32)
