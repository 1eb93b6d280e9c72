"""Convolutions over maps of a few pixels, as matrix products: quicker training steps on a CPU.

Where the last stages learn, maps are 4 x 4 or 7 x 7 pixels and have hundreds of channels. oneDNN's
gradients of such a convolution in 32 bits take up to a third more time than the matrix products
that it consists of, on processors with AVX2; others were not measured and are left alone. The
answers are the same, so nothing else need know: weights, names and the exported file stay what they
were.
"""

from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen.networks.convolutions.replacing import pair, replace_convolutions

LARGEST_MAP = 64
"""Pixels. Larger maps would be copied nine times over for little gain."""
PROCESSORS = ("AVX2",)
"""Whose instructions the products were measured with, in torch's words."""
_FEWEST_PRODUCTS = 1 << 15
"""Of channels in and out: below, a step takes no time worth saving."""
_PADDING = {(1, 1): (0, 0), (3, 3): (1, 1)}
"""By width of the kernel: the output is as large as the input."""


class SmallMaps(nn.Conv2d):
    """Takes the place of `original` and keeps its parameters."""

    def __init__(self, original: nn.Conv2d) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            original.in_channels,
            original.out_channels,
            pair(original.kernel_size),
            padding=pair(original.padding),
            bias=original.bias is not None,
            device="meta",  # draws no random numbers
        )
        self.weight, self.bias = original.weight, original.bias

    def forward(self, input: Tensor) -> Tensor:
        if not self._learns_in_32_bits(input):
            return super().forward(input)
        pixels = input.permute(0, 2, 3, 1)
        if self.kernel_size != (1, 1):
            pixels = neighbourhoods(pixels)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return functional.linear(pixels, weight, self.bias).permute(0, 3, 1, 2)

    def _learns_in_32_bits(self, input: Tensor) -> bool:
        if input.device.type != "cpu" or input.dtype != torch.float32 or input.ndim != 4:
            return False
        if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
            return False
        if input.shape[-2] * input.shape[-1] > LARGEST_MAP or not torch.is_grad_enabled():
            return False
        return self.weight.requires_grad and torch.backends.cpu.get_cpu_capability() in PROCESSORS


def neighbourhoods(pixels: Tensor) -> Tensor:
    """From `[images, height, width, channels]`: the 3 x 3 pixels around each one, one after the
    other, with zeros beyond the border."""
    padded = functional.pad(pixels, (0, 0, 1, 1, 1, 1))
    return padded.unfold(1, 3, 1).unfold(2, 3, 1).permute(0, 1, 2, 4, 5, 3).flatten(3)


def quicken(network: nn.Module) -> None:
    """Replace the convolutions that may meet small maps."""
    replace_convolutions(network, _replaceable, SmallMaps)


def _replaceable(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Plain ones alone: other kinds of convolutions do something else to their weights."""
    if type(module) is not nn.Conv2d or module.padding_mode != "zeros":
        return False
    same_size = module.padding == _PADDING.get(pair(module.kernel_size))
    plain = module.groups == 1 and module.stride == module.dilation == (1, 1)
    return same_size and plain and module.in_channels * module.out_channels >= _FEWEST_PRODUCTS
