"""Brightness, saturation, hue and grayscale as one 3×3 matrix per image, contrast as one offset.

Colour costs a single small matrix product. Hue turns the colour circle in YIQ space, which is
linear; torchvision's HSV detour differs by little and costs most of the usual transform's time.
"""

import math
from functools import cache

import torch
from torch import Tensor

from unseen.config import AugmentSettings

_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def recolour(pixels: Tensor, draws: Tensor, settings: AugmentSettings) -> Tensor:
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
