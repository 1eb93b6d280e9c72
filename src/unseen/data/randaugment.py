"""RandAugment (Cubuk et al. 2020) on whole batches: operations that move pixels make one map, those
that change values make one table per image."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unseen.data import randomness
from unseen.data.randomness import uniform
from unseen.settings.experiment import AugmentSettings

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


class Operations(NamedTuple):
    """The operations of each image, `[n, operations]`."""

    which: Tensor
    """Positions in `OPERATIONS`."""
    amount: Tensor
    """0 to 1."""
    sign: Tensor
    """-1 or 1."""

    def are(self, name: str) -> Tensor:
        """Say which of them are this one."""
        return self.which == OPERATIONS.index(name)

    def total(self, name: str) -> Tensor:
        """Add up the signed amounts of an operation that may be chosen more than once, `[n]`."""
        return (self.are(name) * self.amount * self.sign).sum(dim=1)


def choose(keys: Tensor, settings: AugmentSettings) -> Operations:
    """Draw the operations from the images' keys."""
    number = settings.randaugment_operations
    draws = uniform(keys, 3 * number, randomness.RANDAUGMENT).view(-1, number, 3)
    which = (draws[:, :, 0] * len(OPERATIONS)).long()
    sign = torch.where(draws[:, :, 2] < 0.5, -1.0, 1.0)
    return Operations(which, settings.randaugment * draws[:, :, 1], sign)


def affine(chosen: Operations) -> Tensor:
    """Join turn, shears and shifts of each image in one map, `[n, 2, 3]`."""
    angle = chosen.total("turn") * LARGEST_TURN
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1)
    shear_x, shear_y = (chosen.total(name) * LARGEST_SHEAR for name in ("shear_x", "shear_y"))
    shear = torch.stack([torch.ones_like(angle), shear_x, shear_y, torch.ones_like(angle)], dim=1)
    shift = torch.stack([chosen.total("shift_x"), chosen.total("shift_y")], dim=1) * LARGEST_SHIFT
    return torch.cat([turn.view(-1, 2, 2) @ shear.view(-1, 2, 2), shift[:, :, None]], dim=2)


def change_values(pixels: Tensor, chosen: Operations) -> Tensor:
    """Apply the other operations to pixels from 0 to 255; the result is whole numbers."""
    factor = LARGEST_FACTOR * chosen.total("sharpness")[:, None, None, None]
    pixels = pixels + factor * (pixels - _smoothed(pixels))
    values = pixels.round().clamp_(0, 255).long().flatten(2)
    counts = torch.zeros(*values.shape[:2], 256, device=pixels.device)
    counts.scatter_add_(2, values, counts.new_ones(()).expand_as(values))
    table = torch.arange(256.0, device=pixels.device).expand_as(counts)
    for number in range(chosen.which.shape[1]):
        one = Operations(*(part[:, number : number + 1] for part in chosen))
        table = _next_table(table, counts, one)
    return table.gather(2, values).view(pixels.shape)


def _smoothed(pixels: Tensor) -> Tensor:
    """Apply PIL's filter: 3×3 ones with a five in the middle, over 13. Sums of shifted images are
    many times faster on a CPU than a convolution of so few channels."""
    padded = functional.pad(pixels, (1, 1, 1, 1), mode="replicate")
    rows = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    return (box + 4 * pixels) / 13


def _next_table(table: Tensor, counts: Tensor, chosen: Operations) -> Tensor:
    """Return the table, `[n, 3, 256]`, after one more operation for each image."""
    amount, sign = chosen.amount[:, :, None], chosen.sign[:, :, None]
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
        table = torch.where(chosen.are(name)[:, :, None], values, table)
    return table.round().clamp(0, 255)


def _stretched(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Turn low to 0 and high to 255; where they are equal, nothing changes."""
    span = high - low
    return torch.where(span > 0, (values - low) * 255 / span.clamp_min(1e-6), values)


def _equalized(table: Tensor, counts: Tensor) -> Tensor:
    """Spread values so that each is about as frequent as any other."""
    now = torch.zeros_like(counts).scatter_add_(2, table.long(), counts)
    up_to = now.cumsum(dim=2)
    ranks = up_to.gather(2, table.long())
    lowest = torch.where(now > 0, up_to, up_to[:, :, -1:]).amin(dim=2, keepdim=True)
    spread = _stretched(ranks, lowest, up_to[:, :, -1:])
    return torch.where(lowest < up_to[:, :, -1:], spread, table)
