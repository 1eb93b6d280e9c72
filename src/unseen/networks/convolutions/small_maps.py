"""Convolutions over maps of a few pixels, as matrix products: quicker training steps on a CPU.

Where the last stages learn, maps are 4 x 4 or 7 x 7 pixels and have hundreds of channels. oneDNN's
gradients of such a convolution take up to a half more time than the matrix products that it
consists of: in 32 bits on processors with AVX2, in bfloat16 on those with AVX-512 BF16, and there
only without neighbours (1 x 1). Others were slower or not measured and are left alone. The answers
are the same, so nothing else need know: weights, names and the exported file stay what they were.
"""

from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen.networks.convolutions.replacing import pair, replace_convolutions

LARGEST_MAP = 64
"""Pixels. Larger maps would be copied nine times over for little gain."""
PROCESSORS = ("AVX2",)
"""Whose instructions the products in 32 bits were measured with, in torch's words."""
BFLOAT16 = bool(torch.cpu.get_capabilities().get("avx512_bf16"))
"""Whether the processor has the instructions that products in bfloat16 were measured with."""
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
        if not (self._learns_here(input) and self._is_quicker()):
            return super().forward(input)
        pixels = input.permute(0, 2, 3, 1)
        if self.kernel_size != (1, 1):
            pixels = neighbourhoods(pixels)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return functional.linear(pixels, weight, self.bias).permute(0, 3, 1, 2)

    def _learns_here(self, input: Tensor) -> bool:
        """A training step on a CPU that meets a small map."""
        if input.device.type != "cpu" or input.ndim != 4 or torch.compiler.is_compiling():
            return False
        small = input.shape[-2] * input.shape[-1] <= LARGEST_MAP
        return small and torch.is_grad_enabled() and self.weight.requires_grad

    def _is_quicker(self) -> bool:
        if torch.is_autocast_enabled("cpu"):
            return BFLOAT16 and self.kernel_size == (1, 1)
        if self.weight.dtype != torch.float32:
            return False
        return torch.backends.cpu.get_cpu_capability() in PROCESSORS


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
