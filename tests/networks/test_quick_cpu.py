"""Quick convolutions: answers and gradients are the plain layer's, and others are left alone."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.std_conv import StdConv2d
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from unseen.networks import quick_cpu
from unseen.networks.backbones import build_network
from unseen.networks.quick_cpu import SmallMaps, WideDepthwise, neighbourhoods, quicken
from unseen.settings.experiment import NetworkSettings

BFLOAT16 = torch.autocast("cpu", dtype=torch.bfloat16)
FEW, MANY = 8, 192


@pytest.fixture(autouse=True)
def on_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr(quick_cpu, "PROCESSORS", (here,))
    monkeypatch.setattr(quick_cpu, "BFLOAT16", True)


def depthwise(kind: Any, width: int, stride: int, bias: bool = False) -> Any:
    padding = 0 if kind is Conv2dSame else width // 2
    return kind(FEW, FEW, width, stride, padding, groups=FEW, bias=bias)


WIDE: dict[str, Callable[[], nn.Conv2d]] = {
    "5 x 5": lambda: depthwise(nn.Conv2d, 5, 1),
    "5 x 5, halving, pads itself": lambda: depthwise(Conv2dSame, 5, 2),
    "7 x 7 with a bias": lambda: depthwise(nn.Conv2d, 7, 1, bias=True),
    "4 x 4, halving": lambda: depthwise(nn.Conv2d, 4, 2),
}
SMALL: dict[str, Callable[[], nn.Conv2d]] = {
    "1 x 1": lambda: nn.Conv2d(MANY, 256, 1, bias=False),
    "1 x 1 with a bias": lambda: nn.Conv2d(MANY, 256, 1),
    "3 x 3": lambda: nn.Conv2d(MANY, 256, 3, padding=1, bias=False),
    "3 x 3 with a bias": lambda: nn.Conv2d(MANY, 256, 3, padding=1),
}


def replaced(layer: nn.Conv2d) -> Any:
    holder = nn.Sequential(layer)
    names, state = list(holder.state_dict()), torch.get_rng_state()
    quicken(holder)
    assert list(holder.state_dict()) == names
    assert torch.equal(torch.get_rng_state(), state)
    return holder[0]


def maps(channels: int, *size: int) -> Tensor:
    """Numbers that bfloat16 holds exactly, channels last."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, channels, *size, generator=generator).to(torch.bfloat16).float()
    return x.to(memory_format=torch.channels_last)


def outcome(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The answer, and gradients of a sum in which no two outputs count the same."""
    x = x.clone().requires_grad_()
    output = layer(x)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape).to(torch.bfloat16).float()
    inputs = [x, *layer.parameters()]
    return [output, *torch.autograd.grad((output.float() * weights).sum(), inputs)]


def rounded(layer: nn.Conv2d) -> nn.Conv2d:
    """With weights that bfloat16 holds exactly, so that only the gradients are rounded."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return layer


class Kernels(TorchDispatchMode):
    """Widths and precisions of the kernels whose weights' gradients are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default and args[10][1]:
            self.seen.append((args[2].shape[-1], args[2].dtype))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", WIDE)
def test_wide_depthwise_in_bfloat16(kind: str) -> None:
    """Gradients are the plain layer's, and no kernel wider than three meets bfloat16."""
    plain, x = rounded(WIDE[kind]()), maps(FEW, 9, 9)
    _, *expected = outcome(plain, x)
    with Kernels() as kernels, BFLOAT16:
        _, *found = outcome(replaced(plain), x)
    assert set(kernels.seen) == {(3, torch.bfloat16)}
    # of images: processors without bfloat16 round each of up to 49 products, 2.4 % of the largest
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        largest = (0.01 if number else 0.06) * theirs.abs().max().item()
        torch.testing.assert_close(mine.float(), theirs, rtol=0, atol=largest)


@pytest.mark.parametrize("kind", WIDE)
def test_wide_depthwise_in_32_bits_is_the_plain_layer(kind: str) -> None:
    plain, x = WIDE[kind](), maps(FEW, 9, 9)
    quick = replaced(plain)
    assert type(quick) is WideDepthwise
    with Kernels() as kernels:
        torch.testing.assert_close(outcome(quick, x), outcome(plain, x), rtol=0, atol=0)
    assert {width for width, _ in kernels.seen} == {plain.kernel_size[0]}


@pytest.mark.parametrize("kind", SMALL)
def test_small_maps_in_32_bits(kind: str) -> None:
    plain, x = SMALL[kind](), maps(MANY, 4, 3)
    quick = replaced(plain)
    assert type(quick) is SmallMaps
    torch.testing.assert_close(outcome(quick, x), outcome(plain, x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["1 x 1", "1 x 1 with a bias"])
def test_small_maps_in_bfloat16_are_as_near_as_rounding_allows(kind: str) -> None:
    plain, x = SMALL[kind](), maps(MANY, 4, 3)
    expected = outcome(plain, x)
    with BFLOAT16:
        found = outcome(replaced(plain), x)
    assert [each.dtype for each in found] == [torch.bfloat16] + [torch.float32] * (len(found) - 1)
    for each, wanted in zip(found, expected, strict=True):
        assert (each - wanted).norm() < 0.02 * wanted.norm()


@pytest.mark.parametrize("kind", ["5 x 5", "3 x 3"])
def test_gradients_of_gradients_are_there(kind: str) -> None:
    plain = rounded((WIDE | SMALL)[kind]())

    def second(layer: nn.Module) -> Tensor:
        x = maps(plain.in_channels, 4, 4).requires_grad_()
        (first,) = torch.autograd.grad(layer(x).float().square().mean(), x, create_graph=True)
        (found,) = torch.autograd.grad(first.float().square().sum(), plain.weight)
        return found.float()

    expected, quick = second(plain), replaced(plain)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "5 x 5"):
        found = second(quick)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.03 * expected.abs().max().item())


def test_a_neighbourhood_is_what_a_kernel_sees() -> None:
    pixels = torch.arange(1.0, 7).view(1, 2, 3, 1)  # 1 2 3 above 4 5 6
    found = neighbourhoods(pixels)
    assert found.shape == (1, 2, 3, 9)
    assert found[0, 0, 0].tolist() == [0, 0, 0, 0, 1, 2, 0, 4, 5]
    assert found[0, 1, 1].tolist() == [1, 2, 3, 4, 5, 6, 0, 0, 0]


def products_of(layer: nn.Module, x: Tensor) -> int:
    """Count how often a matrix product stands in for the convolution."""
    linear = torch.nn.functional.linear
    with mock.patch("torch.nn.functional.linear", side_effect=linear) as counted:
        layer(x)
    return counted.call_count


def test_a_product_stands_in_only_for_steps_on_small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, small = replaced(SMALL["3 x 3"]()), maps(MANY, 4, 3)
    assert products_of(quick, small) == 1
    assert products_of(quick, maps(MANY, 9, 9)) == 0
    assert products_of(quick, small[0]) == 0  # one image without a batch
    with torch.no_grad():
        assert products_of(quick, small) == 0
    with monkeypatch.context() as patch:
        patch.setattr(quick_cpu, "PROCESSORS", ("another",))
        assert products_of(quick, small) == 0
    with BFLOAT16:  # only where pixels have no neighbours
        pointwise = replaced(SMALL["1 x 1"]())
        assert [products_of(layer, small) for layer in (quick, pointwise)] == [0, 1]
        monkeypatch.setattr(quick_cpu, "BFLOAT16", False)
        assert [products_of(layer, small) for layer in (quick, pointwise)] == [0, 0]
    quick.requires_grad_(False)
    assert products_of(quick, small) == 0


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.Conv2d(MANY, 256, 3, padding=1, stride=2),
        lambda: nn.Conv2d(MANY, 256, 3),
        lambda: nn.Conv2d(MANY, 256, 3, padding="same"),
        lambda: nn.Conv2d(MANY, 256, 3, padding=1, padding_mode="reflect"),
        lambda: nn.Conv2d(MANY, 192, 3, padding=1, groups=MANY),
        lambda: nn.Conv2d(MANY, 256, 5, padding=2),
        lambda: nn.Conv2d(16, 16, 3, padding=1),
        lambda: StdConv2d(MANY, 256, 3, padding=1),  # normalises its weights
        lambda: depthwise(nn.Conv2d, 3, 1),
        lambda: nn.Conv2d(FEW, FEW, 5),
        lambda: depthwise(StdConv2d, 5, 1),
    ],
)
def test_other_layers_stay(other: Callable[[], nn.Conv2d]) -> None:
    layer = other()
    assert replaced(layer) is layer


def test_networks_have_them_under_the_names_of_their_weights() -> None:
    network = build_network(NetworkSettings(name="resnet18", image_size=64), n_classes=7)
    block: Any = network.stage("layer4")[1]  # type: ignore[index]
    assert type(block.conv1) is SmallMaps
    assert network.original_names["layer4.1.conv1.weight"] == "stages.layer4.1.conv1.weight"
    network = build_network(NetworkSettings(name="efficientnet_lite0", image_size=32), 3)
    with Kernels() as kernels, BFLOAT16:
        network(torch.randn(2, 3, 32, 32)).float().sum().backward()
    assert max(width for width, precision in kernels.seen if precision == torch.bfloat16) == 3
