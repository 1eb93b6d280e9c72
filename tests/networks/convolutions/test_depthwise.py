"""Wide depthwise convolutions: their gradients in bfloat16 are the plain layer's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.std_conv import StdConv2d
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unseen.networks.backbones import build_network
from unseen.networks.quick_cpu import WideDepthwise, quicken
from unseen.settings.experiment import NetworkSettings

CHANNELS = 8


def layer(kind: Any, width: int, stride: int, bias: bool = False) -> Any:
    padding = 0 if kind is Conv2dSame else width // 2
    return kind(CHANNELS, CHANNELS, width, stride, padding, groups=CHANNELS, bias=bias)


LAYERS = {
    "5 x 5": lambda: layer(nn.Conv2d, 5, 1),
    "5 x 5, halving, pads itself": lambda: layer(Conv2dSame, 5, 2),
    "7 x 7 with a bias": lambda: layer(nn.Conv2d, 7, 1, bias=True),
    "4 x 4, halving": lambda: layer(nn.Conv2d, 4, 2),
}


def images(size: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, CHANNELS, size, size, generator=generator)
    return x.to(torch.bfloat16).float().to(memory_format=torch.channels_last)


@contextmanager
def mixed_precision() -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


def gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Of a sum with uneven weights, so that no two outputs count the same."""
    x = x.clone().requires_grad_()
    output = module(x).float()
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape).to(torch.bfloat16).float()
    return list(torch.autograd.grad((output * weights).sum(), [x, *module.parameters()]))


def rounded(module: nn.Conv2d) -> nn.Conv2d:
    """With weights that bfloat16 holds exactly, so that only the gradients are rounded."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return module


class Kernels(TorchDispatchMode):
    """Widths and precisions of the kernels whose weights' gradients are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default and args[10][1]:
            self.seen.append((args[2].shape[-1], args[2].dtype))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_in_bfloat16_are_those_of_the_plain_layer(name: str) -> None:
    plain = rounded(LAYERS[name]())
    expected = gradients(plain, images())
    with mixed_precision():
        found = gradients(WideDepthwise(plain), images())
    # of images: processors without bfloat16 round each of up to 49 products, 2.4 % of the largest
    shares = [0.06] + [0.01] * len(list(plain.parameters()))
    for mine, theirs, share in zip(found, expected, shares, strict=True):
        largest = theirs.abs().max().item()
        torch.testing.assert_close(mine.float(), theirs, rtol=0, atol=share * largest)


@pytest.mark.parametrize("name", LAYERS)
def test_no_kernel_wider_than_three_meets_bfloat16(name: str) -> None:
    module = WideDepthwise(LAYERS[name]())
    with Kernels() as kernels, mixed_precision():
        gradients(module, images())
    assert {(3, torch.bfloat16)} == set(kernels.seen)


@pytest.mark.parametrize("name", LAYERS)
def test_in_32_bits_it_is_the_plain_layer(name: str) -> None:
    plain = LAYERS[name]()
    with Kernels() as kernels:
        for mine, theirs in zip(
            gradients(WideDepthwise(plain), images()), gradients(plain, images()), strict=True
        ):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert {width for width, _ in kernels.seen} == {plain.kernel_size[0]}


def test_gradients_of_gradients_are_there() -> None:
    def second(module: nn.Module) -> Tensor:
        x = images().requires_grad_()
        (first,) = torch.autograd.grad(module(x).float().square().sum(), x, create_graph=True)
        (found,) = torch.autograd.grad(first.float().square().sum(), list(module.parameters()))
        return found.float()

    plain = rounded(LAYERS["5 x 5"]())
    expected = second(plain)
    with mixed_precision():
        found = second(WideDepthwise(plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=0.03 * expected.abs().max().item())


def test_only_wide_depthwise_layers_are_replaced() -> None:
    network = nn.Sequential(
        layer(nn.Conv2d, 5, 1),
        layer(nn.Conv2d, 3, 1),
        nn.Conv2d(CHANNELS, CHANNELS, 5),
        layer(StdConv2d, 5, 1),  # normalises its weights
    )
    names, state = list(network.state_dict()), torch.get_rng_state()
    quicken(network)
    assert [type(module) for module in network] == [WideDepthwise, nn.Conv2d, nn.Conv2d, StdConv2d]
    assert list(network.state_dict()) == names
    assert torch.equal(torch.get_rng_state(), state)


def test_an_efficientnet_trains_quickly_in_bfloat16() -> None:
    settings = NetworkSettings(name="efficientnet_lite0", image_size=32)
    network = build_network(settings, n_classes=3)
    with Kernels() as kernels, mixed_precision():
        network(torch.randn(2, 3, 32, 32)).float().sum().backward()
    assert max(width for width, precision in kernels.seen if precision == torch.bfloat16) == 3
