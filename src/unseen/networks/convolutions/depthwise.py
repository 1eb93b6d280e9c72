"""Depthwise convolutions wider than 3 x 3: quick gradients for training in bfloat16 on a CPU.

oneDNN has no bfloat16 kernels for these gradients and takes ten to a hundred times as long as for
3 x 3. A wide kernel is covered by kernels of 3 x 3, whose gradients are those of its parts, and the
gradient of an image that was halved is computed in 32 bits. The answers are the same, so nothing
else need know: weights, names and the exported file stay what they were.
"""

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.function import Function
from torch.nn import functional

from unseen.networks.convolutions.replacing import pair, replace_convolutions

PART = 3


class WideDepthwise(nn.Conv2d):
    """Takes the place of `original` and keeps its parameters."""

    def __init__(self, original: nn.Conv2d) -> None:
        from timm.layers.conv2d_same import Conv2dSame  # pyright: ignore[reportUnknownVariableType]

        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            original.in_channels,
            original.out_channels,
            pair(original.kernel_size),
            pair(original.stride),
            pair(original.padding),
            groups=original.groups,
            bias=original.bias is not None,
            device="meta",  # draws no random numbers
        )
        self.weight, self.bias = original.weight, original.bias
        self.pads_itself = isinstance(original, Conv2dSame)

    def forward(self, input: Tensor) -> Tensor:
        if self.pads_itself:
            input = _padded(input, pair(self.kernel_size), pair(self.stride))
        if not self._learns_in_bfloat16(input):
            return super().forward(input)
        weight = self.weight.to(torch.bfloat16)
        stride, padding = pair(self.stride), pair(self.padding)
        output: Tensor = _Wide.apply(input.to(torch.bfloat16), weight, stride, padding)  # pyright: ignore[reportAssignmentType]
        return output if self.bias is None else output + self.bias.to(output.dtype)[:, None, None]

    def _learns_in_bfloat16(self, input: Tensor) -> bool:
        if input.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        if not (torch.is_grad_enabled() and self.weight.requires_grad):
            return False
        mixed = torch.is_autocast_enabled("cpu")
        return (torch.get_autocast_dtype("cpu") if mixed else input.dtype) == torch.bfloat16


def quickened(network: nn.Module) -> nn.Module:
    """The network itself; its depthwise convolutions wider than 3 x 3 are replaced."""
    replace_convolutions(network, _wide_depthwise, WideDepthwise)
    return network


def _wide_depthwise(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Plain ones alone: other kinds of convolutions do something else to their weights."""
    from timm.layers.conv2d_same import Conv2dSame  # pyright: ignore[reportUnknownVariableType]

    if type(module) is not nn.Conv2d and type(module) is not Conv2dSame:
        return False
    assert isinstance(module, nn.Conv2d)
    depthwise = module.groups == module.in_channels == module.out_channels
    plain = module.dilation == (1, 1) and module.padding_mode == "zeros"
    known = not isinstance(module.padding, str)
    return depthwise and plain and known and min(module.kernel_size) > PART


def _padded(x: Tensor, widths: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """As TensorFlow pads, so that every pixel of the stride's grid is a centre."""
    from timm.layers import padding

    pad: Any = padding.pad_same  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return pad(x, widths, stride)


class _Wide(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(x, weight, None, stride, padding, 1, x.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        gradient, stride, padding = gradients[0], ctx.stride, ctx.padding
        of_x, of_weight = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # gradients of gradients are wanted: the kernel that has them
            both = _gradients(gradient, x, weight, stride, padding, (of_x, of_weight))
            return both[0], both[1], None, None
        return (
            _of_images(gradient, x, weight, stride, padding) if of_x else None,
            _of_weight(gradient, x, weight, stride, padding) if of_weight else None,
            None,
            None,
        )


def _gradients(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.convolution_backward(
        gradient, x, weight, None, stride, padding, (1, 1), False, (0, 0), x.shape[1],
        (*wanted, False),
    )[:2]  # fmt: skip


def _of_images(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    if stride == (1, 1):
        return _gradients(gradient, x, weight, stride, padding, (True, False))[0]
    wide = (gradient.float(), x.float(), weight.float())
    return _gradients(*wide, stride, padding, (True, False))[0].to(x.dtype)


def _of_weight(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    found = torch.empty_like(weight)
    part = weight[:, :, :PART, :PART]
    padded = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    high, wide = ((n - 1) * s + PART for n, s in zip(gradient.shape[2:], stride, strict=True))
    for top in _starts(weight.shape[2]):
        for left in _starts(weight.shape[3]):
            window = padded[:, :, top : top + high, left : left + wide]
            window = window.contiguous(memory_format=torch.channels_last)
            found[:, :, top : top + PART, left : left + PART] = _gradients(
                gradient, window, part, stride, (0, 0), (False, True)
            )[1]
    return found


def _starts(width: int) -> list[int]:
    """Where parts begin that cover the width, the last one at its end: 0 and 2 for 5."""
    return sorted({min(start, width - PART) for start in range(0, width, PART)})
