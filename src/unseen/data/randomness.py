"""Which random numbers of an image's key belong to what: no two uses share a stream.

Stream 0 is that of crop and colour, streams from 1 on are those of methods (masks, splits), and
augmentations that came later count from 1000 on.
"""

import math

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def _signed(value: int) -> int:
    """Return the 64-bit pattern of `value` as torch's signed int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift int64 to the right logically, which torch shifts arithmetically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _signed(_MIX_1)
    x = (x ^ _shift(x, 27)) * _signed(_MIX_2)
    return x ^ _shift(x, 31)


def image_keys(seed: int, step: int, places: Tensor) -> Tensor:
    """Return one key for each place in the (global) batch of a step."""
    start = torch.full_like(places, _signed(seed * _GOLDEN + step * _MIX_1 + 1))
    return _mix(_mix(start) + (places + 1) * _signed(_GOLDEN))


def step_key(seed: int, step: int) -> Tensor:
    """Return `[1]`: a key for the step as a whole, which no image has."""
    return image_keys(seed, step, torch.tensor([-2]))


def uniform(keys: Tensor, width: int, stream: int = 0) -> Tensor:
    """Draw `[len(keys), width]` numbers in [0, 1); each `stream` is independent of the others."""
    columns = torch.arange(width, device=keys.device, dtype=torch.int64)
    columns = _mix(columns + _signed((stream + 1) * _MIX_2))
    bits = _mix(keys[:, None] + columns[None, :] * _signed(_GOLDEN))
    return _shift(bits, 40).to(torch.float32) * 2.0**-24


def normal(keys: Tensor, width: int, stream: int = 0) -> Tensor:
    """Draw `[len(keys), width]` numbers of mean 0 and deviation 1 (Box and Muller)."""
    first, second = uniform(keys, 2 * width, stream).chunk(2, dim=1)
    return (-2 * (1 - first).log()).sqrt() * (2 * math.pi * second).cos()


CROP_AND_COLOUR = 0
RANDAUGMENT = 1000
RANDOM_CONVOLUTION = 1001
RANDOM_FILTERS = 1002
AMPLITUDE_MIX = 1003
PARTNERS = 1004
ERASING = 1005
VIEWS = 1006
FIRST_MIXSTYLE = 1007  # one for each stage
