"""RandConv: Robust and Generalizable Visual Representation Learning via Random Convolutions (Xu et
al., ICLR 2021), the variant that mixes.

Each image is filtered by a random k × k filter of its own, k out of 1, 3, 5 and 7, with weights of
variance 1 / 3k² (so that values keep their size), and mixed: α I + (1 − α) (I * Θ), α ~ U(0, 1).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from unseen.data.augmentation import streams
from unseen.data.randomness import normal, uniform

SIZES = (1, 3, 5, 7)


def random_convolution(pixels: Tensor, keys: Tensor, chance: float, mean: Tensor) -> Tensor:
    """On pixels from 0 to 255, which stay in that range; `mean` is what counts as zero."""
    draws = uniform(keys, 3, streams.RANDOM_CONVOLUTION)
    chosen = draws[:, 0] < chance
    sizes = (draws[:, 1] * len(SIZES)).long()
    centred = pixels - mean[:, None, None]
    filtered = _each_by_its_own(centred, random_filters(keys, sizes), sizes, chosen)
    share = torch.where(chosen, 1 - draws[:, 2], 0.0)[:, None, None, None]
    return (pixels + share * (filtered - centred)).clamp_(0, 255)


def random_filters(keys: Tensor, sizes: Tensor) -> Tensor:
    """`[n, 3, 3, 7, 7]`, zero beyond each image's own size, which is a position in `SIZES`."""
    largest = SIZES[-1]
    weights = normal(keys, 9 * largest**2, streams.RANDOM_FILTERS)
    side = torch.tensor(SIZES, device=keys.device)[sizes]
    distance = (torch.arange(largest, device=keys.device) - largest // 2).abs()
    inside = distance <= side[:, None] // 2
    inside = inside[:, None, None, :, None] & inside[:, None, None, None, :]
    deviation = (1 / (math.sqrt(3) * side))[:, None, None, None, None]
    return weights.view(-1, 3, 3, largest, largest) * inside * deviation


def _each_by_its_own(images: Tensor, filters: Tensor, sizes: Tensor, chosen: Tensor) -> Tensor:
    """On a CPU image by image, which is faster and spares those that were not chosen; elsewhere all
    as groups of one convolution, which waits for nothing."""
    middle = SIZES[-1] // 2
    if images.device.type != "cpu":
        n, channels, *size = images.shape
        together = images.reshape(1, n * channels, *size)
        filtered = functional.conv2d(together, filters.flatten(0, 1), padding=middle, groups=n)
        return filtered.view(images.shape)
    filtered = images.clone()
    for i in map(int, chosen.nonzero()):
        reach = SIZES[int(sizes[i])] // 2
        near = slice(middle - reach, middle + reach + 1)
        filtered[i] = functional.conv2d(images[i], filters[i, :, :, near, near], padding=reach)
    return filtered
