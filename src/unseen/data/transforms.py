"""RandConv: Robust and Generalizable Visual Representation Learning via Random Convolutions (Xu et
al., ICLR 2021), the variant that mixes.

Each image is filtered by a random k × k filter of its own, k out of 1, 3, 5 and 7, with weights of
variance 1 / 3k² (so that values keep their size), and mixed: α I + (1 − α) (I * Θ), α ~ U(0, 1).
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseen.data import randomness
from unseen.data.randomness import normal, uniform
from unseen.settings.experiment import AugmentSettings

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


AREAS = (0.02, 0.33)
NARROWEST = 0.3
"""Of the sides' ratio; the other way round it is the widest."""


def erase(pixels: Tensor, keys: Tensor, chance: float) -> Tensor:
    """Area and log aspect are uniform; a side longer than the image's is cut off."""
    draws = uniform(keys, 5, randomness.ERASING)
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


OPERATIONS = (
    *("nothing", "turn", "shear_x", "shear_y", "shift_x", "shift_y"),
    *("sharpness", "brightness", "contrast", "posterize", "solarize", "autocontrast", "equalize"),
)
LARGEST_TURN = math.radians(30)
LARGEST_SHEAR = 0.3
LARGEST_SHIFT = 0.9  # of half the side
LARGEST_FACTOR = 0.9  # on brightness, contrast and sharpness, above or below 1
FEWEST_BITS = 4
_LUMA = (0.299, 0.587, 0.114)


class Choice(NamedTuple):
    """The operations of each image, `[n, operations]`."""

    which: Tensor
    """Positions in `OPERATIONS`."""
    amount: Tensor
    """0 to 1."""
    sign: Tensor
    """-1 or 1."""

    def picked(self, name: str) -> Tensor:
        return self.which == OPERATIONS.index(name)

    def total(self, name: str) -> Tensor:
        """`[n]`: signed amounts of an operation that may be chosen more than once."""
        return (self.picked(name) * self.amount * self.sign).sum(dim=1)


def choose(keys: Tensor, settings: AugmentSettings) -> Choice:
    """As `settings` ask, from the images' keys."""
    number = settings.randaugment_operations
    draws = uniform(keys, 3 * number, randomness.RANDAUGMENT).view(-1, number, 3)
    which = (draws[:, :, 0] * len(OPERATIONS)).long()
    sign = torch.where(draws[:, :, 2] < 0.5, -1.0, 1.0)
    return Choice(which, settings.randaugment * draws[:, :, 1], sign)


def affine(choice: Choice) -> Affine:
    """Turn, shears and shifts of each image in one map."""
    angle = choice.total("turn") * LARGEST_TURN
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1)
    shear_x, shear_y = (choice.total(name) * LARGEST_SHEAR for name in ("shear_x", "shear_y"))
    shear = torch.stack([torch.ones_like(angle), shear_x, shear_y, torch.ones_like(angle)], dim=1)
    shift = torch.stack([choice.total("shift_x"), choice.total("shift_y")], dim=1) * LARGEST_SHIFT
    return Affine(turn.view(-1, 2, 2) @ shear.view(-1, 2, 2), shift)


def change_values(pixels: Tensor, choice: Choice) -> Tensor:
    """The other operations, on pixels from 0 to 255; the result is rounded to whole numbers."""
    factor = LARGEST_FACTOR * choice.total("sharpness")[:, None, None, None]
    pixels = pixels + factor * (pixels - _smoothed(pixels))
    values = pixels.round().clamp_(0, 255).long().flatten(2)
    counts = torch.zeros(*values.shape[:2], 256, device=pixels.device)
    counts.scatter_add_(2, values, counts.new_ones(()).expand_as(values))
    table = torch.arange(256.0, device=pixels.device).expand_as(counts)
    for number in range(choice.which.shape[1]):
        one = Choice(*(part[:, number : number + 1] for part in choice))
        table = _next_table(table, counts, one)
    return table.gather(2, values).view(pixels.shape)


def _smoothed(pixels: Tensor) -> Tensor:
    """PIL's filter: 3×3 ones with a five in the middle, over 13. Sums of shifted images are many
    times faster on a CPU than a convolution of so few channels."""
    padded = functional.pad(pixels, (1, 1, 1, 1), mode="replicate")
    rows = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    return (box + 4 * pixels) / 13


def _next_table(table: Tensor, counts: Tensor, choice: Choice) -> Tensor:
    """`[n, 3, 256]`: the table after one more operation for each image."""
    amount, sign = choice.amount[:, :, None], choice.sign[:, :, None]
    factor = 1 + LARGEST_FACTOR * amount * sign
    n_pixels = counts[0, 0].sum()
    luma = torch.tensor(_LUMA, device=table.device)
    grey = ((counts * table).sum(dim=2) / n_pixels @ luma)[:, None, None]
    step = 2 ** ((8 - FEWEST_BITS) * amount).round()
    low = table.masked_fill(counts == 0, 255).amin(dim=2, keepdim=True)
    high = table.masked_fill(counts == 0, 0).amax(dim=2, keepdim=True)
    changed = {
        "brightness": table * factor,
        "contrast": grey + factor * (table - grey),
        "posterize": table.div(step, rounding_mode="floor") * step,
        "solarize": torch.where(table < 256 * (1 - amount), table, 255 - table),
        "autocontrast": _stretched(table, low, high),
        "equalize": _equalized(table, counts),
    }
    for name, values in changed.items():
        table = torch.where(choice.picked(name)[:, :, None], values, table)
    return table.round().clamp(0, 255)


def _stretched(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Low becomes 0 and high 255; where they are equal, nothing changes."""
    span = high - low
    return torch.where(span > 0, (values - low) * 255 / span.clamp_min(1e-6), values)


def _equalized(table: Tensor, counts: Tensor) -> Tensor:
    """Values spread so that each is about as frequent as any other."""
    now = torch.zeros_like(counts).scatter_add_(2, table.long(), counts)
    up_to = now.cumsum(dim=2)
    ranks = up_to.gather(2, table.long())
    lowest = torch.where(now > 0, up_to, up_to[:, :, -1:]).amin(dim=2, keepdim=True)
    spread = _stretched(ranks, lowest, up_to[:, :, -1:])
    return torch.where(lowest < up_to[:, :, -1:], spread, table)


SIZES = (1, 3, 5, 7)


def random_convolution(pixels: Tensor, keys: Tensor, chance: float, mean: Tensor) -> Tensor:
    """On pixels from 0 to 255, which stay in that range; `mean` is what counts as zero."""
    draws = uniform(keys, 3, randomness.RANDOM_CONVOLUTION)
    chosen = draws[:, 0] < chance
    sizes = (draws[:, 1] * len(SIZES)).long()
    centred = pixels - mean[:, None, None]
    filtered = _each_by_its_own(centred, random_filters(keys, sizes), sizes, chosen)
    share = torch.where(chosen, 1 - draws[:, 2], 0.0)[:, None, None, None]
    return (pixels + share * (filtered - centred)).clamp_(0, 255)


def random_filters(keys: Tensor, sizes: Tensor) -> Tensor:
    """`[n, 3, 3, 7, 7]`, zero beyond each image's own size, which is a position in `SIZES`."""
    largest = SIZES[-1]
    weights = normal(keys, 9 * largest**2, randomness.RANDOM_FILTERS)
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
