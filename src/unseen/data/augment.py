"""Augmentation of whole batches, on the device that trains: one resampling, one colour matrix, and
what else is switched on, each a function of the image's key.

Random convolutions are those of RandConv (Xu et al., Robust and Generalizable Visual Representation
Learning via Random Convolutions, ICLR 2021), the variant that mixes: each image is filtered by a
random k × k filter of its own, k out of 1, 3, 5 and 7, with weights of variance 1 / 3k² (so that
values keep their size), and mixed: α I + (1 − α) (I * Θ), α ~ U(0, 1). The authors draw one filter
and one α for a whole batch, filter pixels that were divided by their deviation, and clamp nothing.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseen.data import randaugment, randomness
from unseen.data.randomness import normal, uniform
from unseen.data.styles import amplitude_mix
from unseen.settings.experiment import AugmentSettings

TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""From red, green and blue to brightness and two axes of colour."""
ERASED_AREAS = (0.02, 0.33)
NARROWEST_ERASED = 0.3
"""The smallest ratio of an erased rectangle's sides; the other way round it is the widest."""
FILTER_SIZES = (1, 3, 5, 7)
ON_ITS_OWN = ("cpu",)
"""Devices that filter images quicker one by one, and so spare those that were not chosen."""


class PixelScale(NamedTuple):
    """What a network expects of its pixels, in units of [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def to_input(images: Tensor, scale: PixelScale) -> Tensor:
    """Turn pixels 0..255 (uint8) to what a network wants, without augmentation."""
    return _scaled(images.to(torch.float32), scale)


def _scaled(pixels: Tensor, scale: PixelScale) -> Tensor:
    """Scale pixels of 0..255 in place."""
    return pixels.sub_(_per_channel(scale.mean, pixels)).div_(_per_channel(scale.std, pixels))


def _per_channel(values: tuple[float, ...], pixels: Tensor) -> Tensor:
    return (torch.tensor(values, device=pixels.device) * 255)[:, None, None]


def augment(
    images: Tensor,
    keys: Tensor,
    settings: AugmentSettings,
    scale: PixelScale,
    partners: Tensor | None = None,
) -> Tensor:
    """Change each image at random, then scale it as the network wants it.

    `partners`: as many images of other training domains (`styles.partner_rows`), which
    `settings.amplitude_mix` needs.
    """
    draws = uniform(keys, 10, randomness.CROP_AND_COLOUR)
    pixels = images.to(torch.float32)
    if settings.amplitude_mix > 0:
        assert partners is not None
        pixels = amplitude_mix(pixels, partners, keys, settings.amplitude_mix)
    operations = randaugment.choose(keys, settings) if settings.randaugment > 0 else None
    if settings.crop_scale < 1 or settings.flip > 0 or operations:
        moved = randaugment.affine(operations) if operations else None
        pixels = resample(pixels, draws[:, :5], settings, moved)
    if operations:
        pixels = randaugment.change_values(pixels, operations)
    if settings.jitter > 0 or settings.grayscale > 0:
        pixels = recolour(pixels, draws[:, 5:], settings)
    if settings.random_convolution > 0:
        mean = _per_channel(scale.mean, pixels)
        pixels = random_convolution(pixels, keys, settings.random_convolution, mean)
    if settings.erasing > 0:
        pixels = erase(pixels, keys, settings.erasing)
    return _scaled(pixels, scale).contiguous(memory_format=torch.channels_last)


def resample(
    pixels: Tensor, draws: Tensor, settings: AugmentSettings, moved: Tensor | None
) -> Tensor:
    """Resample a crop of random area and aspect (3/4 to 4/3) to full size, and maybe mirror it;
    `moved`, `[n, 2, 3]`, says where points within it, between -1 and 1, come from."""
    width, height = _crop_size(draws, settings)
    mirror = torch.where(draws[:, 4] < settings.flip, -1.0, 1.0)
    left, top = (1 - width) * (2 * draws[:, 2] - 1), (1 - height) * (2 * draws[:, 3] - 1)
    rows, columns = (
        (2 * torch.arange(n, device=pixels.device) + 1) / n - 1 for n in pixels.shape[2:]
    )
    shape = (len(pixels), len(rows), len(columns))
    if moved is None:
        x = (torch.outer(width * mirror, columns) + left[:, None])[:, None, :].expand(shape)
        y = (torch.outer(height, rows) + top[:, None])[:, :, None].expand(shape)
        grid = torch.stack([x, y], dim=3)
    else:
        size = torch.stack([width * mirror, height], dim=1)
        matrix = size[:, :, None] * moved[:, :, :2]
        offset = size * moved[:, :, 2] + torch.stack([left, top], dim=1)
        points = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).flatten(1)
        grid = torch.baddbmm(offset[:, :, None], matrix, points.expand(len(pixels), -1, -1))
        grid = grid.transpose(1, 2).reshape(*shape, 2)
    return functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)


def _crop_size(draws: Tensor, settings: AugmentSettings) -> tuple[Tensor, Tensor]:
    """Draw width and height as shares of the image's."""
    if settings.crop_scale == 1:
        return torch.ones_like(draws[:, 0]), torch.ones_like(draws[:, 0])
    area = settings.crop_scale + (1 - settings.crop_scale) * draws[:, 0]
    aspect = ((2 * draws[:, 1] - 1) * math.log(4 / 3)).exp()
    return (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)


def recolour(pixels: Tensor, draws: Tensor, settings: AugmentSettings) -> Tensor:
    """Apply one matrix and one offset per image, and go back into 0..255."""
    strength = settings.jitter * (2 * draws[:, :4] - 1)
    brightness, contrast, saturation = (1 + strength[:, i] for i in range(3))
    matrix = _hue_matrix(strength[:, 3]) * brightness[:, None, None]
    luma = torch.tensor(TO_YIQ[0], device=pixels.device)
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
    """Turn the colour circle (1 is a full turn), which leaves brightness as it is."""
    angle = turns * 2 * math.pi
    parts = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], dim=1)
    return (parts @ _hue_parts(turns.device)).view(-1, 3, 3)


@cache
def _hue_parts(device: torch.device) -> Tensor:
    """Return `[3, 9]`: what a turn of the colour circle leaves, and what goes with its cosine and
    sine."""
    to_yiq = torch.tensor(TO_YIQ, dtype=torch.float64)
    colour = torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    quarter = torch.zeros_like(colour)
    quarter[2, 1], quarter[1, 2] = 1, -1
    parts = torch.stack([torch.eye(3, dtype=torch.float64) - colour, colour, quarter])
    return (torch.inverse(to_yiq) @ parts @ to_yiq).flatten(1).to(device, torch.float32)


def erase(pixels: Tensor, keys: Tensor, chance: float) -> Tensor:
    """Replace a random rectangle by the image's mean. Area and log aspect are uniform; a side
    longer than the image's is cut off."""
    draws = uniform(keys, 5, randomness.ERASING)
    area = ERASED_AREAS[0] + (ERASED_AREAS[1] - ERASED_AREAS[0]) * draws[:, 1]
    aspect = ((2 * draws[:, 2] - 1) * math.log(NARROWEST_ERASED)).exp()
    chosen = draws[:, 0] < chance
    rows = _span((area / aspect).sqrt(), draws[:, 3], pixels.shape[2]) & chosen[:, None]
    columns = _span((area * aspect).sqrt(), draws[:, 4], pixels.shape[3])
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, pixels.mean(dim=(2, 3), keepdim=True), pixels)


def _span(share: Tensor, place: Tensor, side: int) -> Tensor:
    """Return `[n, side]`: which pixels along one side lie in the rectangle."""
    length = (share.clamp(max=1) * side).round()
    first = (place * (side - length + 1)).floor()
    at = torch.arange(side, device=share.device)
    return (at >= first[:, None]) & (at < (first + length)[:, None])


def random_convolution(pixels: Tensor, keys: Tensor, chance: float, mean: Tensor) -> Tensor:
    """Filter pixels from 0 to 255, which stay in that range; `mean` is what counts as zero."""
    draws = uniform(keys, 3, randomness.RANDOM_CONVOLUTION)
    chosen = draws[:, 0] < chance
    sizes = (draws[:, 1] * len(FILTER_SIZES)).long()
    centred = pixels - mean
    filtered = _each_by_its_own(centred, random_filters(keys, sizes), sizes, chosen)
    share = torch.where(chosen, 1 - draws[:, 2], 0.0)[:, None, None, None]
    return (pixels + share * (filtered - centred)).clamp_(0, 255)


def random_filters(keys: Tensor, sizes: Tensor) -> Tensor:
    """Draw `[n, 3, 3, 7, 7]`, zero beyond each image's size, a position in `FILTER_SIZES`."""
    largest = FILTER_SIZES[-1]
    weights = normal(keys, 9 * largest**2, randomness.RANDOM_FILTERS)
    side = torch.tensor(FILTER_SIZES, device=keys.device)[sizes]
    distance = (torch.arange(largest, device=keys.device) - largest // 2).abs()
    inside = distance <= side[:, None] // 2
    inside = inside[:, None, None, :, None] & inside[:, None, None, None, :]
    deviation = (1 / (math.sqrt(3) * side))[:, None, None, None, None]
    return weights.view(-1, 3, 3, largest, largest) * inside * deviation


def _each_by_its_own(images: Tensor, filters: Tensor, sizes: Tensor, chosen: Tensor) -> Tensor:
    """Filter images one by one, or all as groups of one convolution, which waits for nothing."""
    middle = FILTER_SIZES[-1] // 2
    if images.device.type not in ON_ITS_OWN:
        n, channels, *size = images.shape
        together = images.reshape(1, n * channels, *size)
        filtered = functional.conv2d(together, filters.flatten(0, 1), padding=middle, groups=n)
        return filtered.view(images.shape)
    filtered = images.clone()
    for i in map(int, chosen.nonzero()):
        reach = FILTER_SIZES[int(sizes[i])] // 2
        near = slice(middle - reach, middle + reach + 1)
        filtered[i] = functional.conv2d(images[i], filters[i, :, :, near, near], padding=reach)
    return filtered
