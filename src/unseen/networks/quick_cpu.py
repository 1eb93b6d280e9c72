"""Convolutions over maps of a few pixels, as matrix products: quicker training steps on a CPU.

Where the last stages learn, maps are 4 x 4 or 7 x 7 pixels and have hundreds of channels. oneDNN's
gradients of such a convolution take up to a half more time than the matrix products that it
consists of: in 32 bits on processors with AVX2, in bfloat16 on those with AVX-512 BF16, and there
only without neighbours (1 x 1). Others were slower or not measured and are left alone. The answers
are the same, so nothing else need know: weights, names and the exported file stay what they were.
"""

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional

Pair = tuple[int, int]
PART = 3
"""Width of the kernels that wider depthwise ones are put together from."""


def quicken(network: nn.Module) -> None:
    """Replace the convolutions that are slow in training, wherever they stand. A replacement keeps
    the parameters. Plain ones alone: other kinds do something else to their weights."""
    for parent in list(network.modules()):
        for name, module in list(parent.named_children()):
            if (kind := _replacement(module)) is not None:
                setattr(parent, name, kind(module))


def _replacement(module: nn.Module) -> "type[_Replacement] | None":
    if not isinstance(module, nn.Conv2d) or isinstance(module.padding, str):
        return None
    if module.padding_mode != "zeros" or module.dilation != (1, 1):
        return None
    plain, width = type(module) is nn.Conv2d, pair(module.kernel_size)
    depthwise = module.groups == module.in_channels == module.out_channels
    if depthwise and min(width) > PART and (plain or _pads_itself(module)):
        return WideDepthwise
    same_size = module.padding == _PADDING.get(width) and module.stride == (1, 1)
    enough = module.in_channels * module.out_channels >= _FEWEST_PRODUCTS
    return SmallMaps if plain and module.groups == 1 and same_size and enough else None


def _pads_itself(module: nn.Module) -> bool:
    """Whether it pads as TensorFlow does, so that every pixel of the stride's grid is a centre."""
    from timm.layers.conv2d_same import Conv2dSame  # pyright: ignore[reportUnknownVariableType]

    return type(module) is Conv2dSame


def pair(values: Any) -> Pair:
    """Return height and width of a kernel, a stride or a border."""
    return int(values[0]), int(values[1])


class _Replacement(nn.Conv2d):
    def __init__(self, original: Any) -> None:
        nn.Module.__init__(self)  # draws no random numbers
        self.__dict__.update(original.__dict__)
        self.pads_itself = _pads_itself(original)


class WideDepthwise(_Replacement):
    """A depthwise convolution wider than 3 x 3: gradients in bfloat16 part by part."""

    def forward(self, input: Tensor) -> Tensor:
        stride, padding = pair(self.stride), pair(self.padding)
        if self.pads_itself:
            from timm.layers import padding as timm_padding

            pad: Any = timm_padding.pad_same  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            input = pad(input, pair(self.kernel_size), stride)
        if not self._learns_in_bfloat16(input):
            return super().forward(input)
        weight = self.weight.to(torch.bfloat16)
        output: Tensor = _Wide.apply(input.to(torch.bfloat16), weight, stride, padding)  # pyright: ignore[reportAssignmentType]
        return output if self.bias is None else output + self.bias.to(output.dtype)[:, None, None]

    def _learns_in_bfloat16(self, input: Tensor) -> bool:
        if input.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return False
        mixed = torch.is_autocast_enabled("cpu")
        return (torch.get_autocast_dtype("cpu") if mixed else input.dtype) == torch.bfloat16


class _Wide(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(x, weight, None, stride, padding, 1, x.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (gradient,), (x, weight), stride = gradients, ctx.saved_tensors, ctx.stride
        of_x, of_weight = ctx.needs_input_grad[:2]
        tensors = (gradient, x, weight)
        if torch.is_grad_enabled():  # gradients of gradients are wanted: the kernel that has them
            return *_gradients(*tensors, stride, ctx.padding, (of_x, of_weight)), None, None
        x_gradient = weight_gradient = None
        if of_x:
            if stride != (1, 1):
                tensors = (gradient.float(), x.float(), weight.float())
            x_gradient = _gradients(*tensors, stride, ctx.padding, (True, False))[0].to(x.dtype)
        if of_weight:
            weight_gradient = _of_weight(gradient, x, weight, stride, ctx.padding)
        return x_gradient, weight_gradient, None, None


def _gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: Pair, padding: Pair, of: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), x.shape[1],
        (*of, False),
    )[:2]  # fmt: skip


def _of_weight(gradient: Tensor, x: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
    found = torch.empty_like(weight)
    part = weight[:, :, :PART, :PART]
    padded = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    high, wide = ((n - 1) * s + PART for n, s in zip(gradient.shape[2:], stride, strict=True))
    for top, left in product(*map(_starts, weight.shape[2:])):
        window = padded[:, :, top : top + high, left : left + wide]
        window = window.contiguous(memory_format=torch.channels_last)
        own = _gradients(gradient, window, part, stride, (0, 0), (False, True))[1]
        found[:, :, top : top + PART, left : left + PART] = own
    return found


def _starts(width: int) -> list[int]:
    """Return where parts begin that cover the width, the last one at its end: 0 and 2 for 5."""
    return sorted({min(start, width - PART) for start in range(0, width, PART)})


LARGEST_MAP = 64
"""Pixels. Larger maps would be copied nine times over for little gain."""
PROCESSORS = ("AVX2",)
"""Whose instructions the products in 32 bits were measured with, in torch's words."""
BFLOAT16 = hasattr(torch.cpu, "get_capabilities") and bool(
    torch.cpu.get_capabilities().get("avx512_bf16")
)
"""Whether the processor has the instructions that products in bfloat16 were measured with; old
versions of torch do not say."""
_FEWEST_PRODUCTS = 1 << 15
"""Of channels in and out: below, a step takes no time worth saving."""
_PADDING = {(1, 1): (0, 0), (3, 3): (1, 1)}
"""By width of the kernel: the output is as large as the input."""


class SmallMaps(_Replacement):
    """A convolution that is a matrix product where the map is small."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self._learns_here(input) and self._is_quicker()):
            return super().forward(input)
        pixels = input.permute(0, 2, 3, 1)
        if self.kernel_size != (1, 1):
            pixels = neighbourhoods(pixels)
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return functional.linear(pixels, weight, self.bias).permute(0, 3, 1, 2)

    def _learns_here(self, input: Tensor) -> bool:
        """Whether this is a training step on a CPU that meets a small map."""
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
