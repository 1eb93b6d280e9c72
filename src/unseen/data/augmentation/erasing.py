"""Random erasing (Zhong et al., AAAI 2020): a rectangle of the image becomes its mean colour."""

import math

import torch
from torch import Tensor

from unseen.data.augmentation import streams
from unseen.data.randomness import uniform

AREAS = (0.02, 0.33)
NARROWEST = 0.3
"""Of the sides' ratio; the other way round it is the widest."""


def erase(pixels: Tensor, keys: Tensor, chance: float) -> Tensor:
    """Area and log aspect are uniform; a side longer than the image's is cut off."""
    draws = uniform(keys, 5, streams.ERASING)
    area = AREAS[0] + (AREAS[1] - AREAS[0]) * draws[:, 1]
    aspect = ((2 * draws[:, 2] - 1) * math.log(NARROWEST)).exp()
    chosen = draws[:, 0] < chance
    rows = _span((area / aspect).sqrt(), draws[:, 3], pixels.shape[2]) & chosen[:, None]
    columns = _span((area * aspect).sqrt(), draws[:, 4], pixels.shape[3])
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, pixels.mean(dim=(2, 3), keepdim=True), pixels)


def _span(share: Tensor, place: Tensor, side: int) -> Tensor:
    """`[n, side]`: which pixels along one side lie in the rectangle."""
    length = (share.clamp(max=1) * side).round()
    first = (place * (side - length + 1)).floor()
    at = torch.arange(side, device=share.device)
    return (at >= first[:, None]) & (at < (first + length)[:, None])
