"""Convolutions over small maps as matrix products: answers and gradients are the plain layer's."""

from typing import Any

import pytest
import torch
from timm.layers.std_conv import StdConv2d
from torch import Tensor, nn

from unseen.networks import quick_cpu
from unseen.networks.backbones import build_network
from unseen.networks.quick_cpu import SmallMaps, neighbourhoods
from unseen.settings.experiment import NetworkSettings

CHANNELS = 192


@pytest.fixture(autouse=True)
def on_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr(quick_cpu, "PROCESSORS", (here,))
    monkeypatch.setattr(quick_cpu, "BFLOAT16", True)


LAYERS = {
    "1 x 1": lambda: nn.Conv2d(CHANNELS, 256, 1, bias=False),
    "1 x 1 with a bias": lambda: nn.Conv2d(CHANNELS, 256, 1),
    "3 x 3": lambda: nn.Conv2d(CHANNELS, 256, 3, padding=1, bias=False),
    "3 x 3 with a bias": lambda: nn.Conv2d(CHANNELS, 256, 3, padding=1),
}


def maps(size: tuple[int, int] = (4, 3)) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, CHANNELS, *size, generator=generator)
    return x.to(memory_format=torch.channels_last)


def replaced(layer: nn.Conv2d) -> nn.Module:
    holder = nn.Sequential(layer)
    quick_cpu.quicken(holder)
    return holder[0]


def uneven_sum(output: Tensor) -> Tensor:
    """No two outputs count the same."""
    return (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum()


def products_of(module: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a matrix product stands in for the convolution."""
    found: list[Tensor] = []
    linear = torch.nn.functional.linear

    def counted(*arguments: Any) -> Tensor:
        found.append(arguments[0])
        return linear(*arguments)

    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    module(x)
    return len(found)


def test_a_neighbourhood_is_what_a_kernel_sees() -> None:
    pixels = torch.arange(1.0, 7).view(1, 2, 3, 1)  # 1 2 3 above 4 5 6
    found = neighbourhoods(pixels)
    assert found.shape == (1, 2, 3, 9)
    assert found[0, 0, 0].tolist() == [0, 0, 0, 0, 1, 2, 0, 4, 5]
    assert found[0, 1, 1].tolist() == [1, 2, 3, 4, 5, 6, 0, 0, 0]


@pytest.mark.parametrize("kind", LAYERS)
def test_answers_and_gradients_are_the_plain_layers(kind: str) -> None:
    plain = LAYERS[kind]()
    quick = replaced(plain)
    assert type(quick) is SmallMaps
    assert list(quick.state_dict()) == list(plain.state_dict())
    x = maps().requires_grad_()
    torch.testing.assert_close(quick(x), plain(x), rtol=1e-4, atol=1e-4)
    inputs = [x, *plain.parameters()]
    expected = torch.autograd.grad(uneven_sum(plain(x)), inputs)
    for found, wanted in zip(
        torch.autograd.grad(uneven_sum(quick(x)), inputs), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind.startswith("1 x 1")])
def test_in_bfloat16_they_are_as_near_as_rounding_allows(kind: str) -> None:
    plain = LAYERS[kind]()
    quick = replaced(plain)
    x = maps().requires_grad_()
    inputs = [x, *plain.parameters()]
    expected = [plain(x), *torch.autograd.grad(uneven_sum(plain(x)), inputs)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = quick(x)
    assert answer.dtype == torch.bfloat16
    found = [answer, *torch.autograd.grad(uneven_sum(answer.float()), inputs)]
    assert [each.dtype for each in found[1:]] == [torch.float32] * len(inputs)
    for each, wanted in zip(found, expected, strict=True):
        assert (each - wanted).norm() < 0.02 * wanted.norm()


def test_gradients_of_gradients_are_the_plain_layers() -> None:
    plain = LAYERS["3 x 3"]()
    found: list[Tensor] = []
    for layer in (plain, replaced(plain)):
        x = maps().requires_grad_()
        (first,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        found += torch.autograd.grad(first.square().sum(), plain.weight)
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)


def test_a_product_stands_in_only_for_steps_on_small_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = replaced(LAYERS["3 x 3"]())
    with monkeypatch.context() as patch:
        assert products_of(quick, maps(), patch) == 1
    others = {"large": maps((9, 9)), "one image without a batch": maps()[0]}
    for name, x in others.items():
        with monkeypatch.context() as patch:
            assert products_of(quick, x, patch) == 0, name
    with monkeypatch.context() as patch, torch.no_grad():
        assert products_of(quick, maps(), patch) == 0
    with monkeypatch.context() as patch:
        patch.setattr(quick_cpu, "PROCESSORS", ("another",))
        assert products_of(quick, maps(), patch) == 0
    quick.requires_grad_(False)
    with monkeypatch.context() as patch:
        assert products_of(quick, maps(), patch) == 0


def test_in_bfloat16_a_product_stands_in_where_pixels_have_no_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = {"1 x 1": 1, "3 x 3": 0}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for kind, products in expected.items():
            with monkeypatch.context() as patch:
                assert products_of(replaced(LAYERS[kind]()), maps(), patch) == products, kind
        monkeypatch.setattr(quick_cpu, "BFLOAT16", False)
        for kind in expected:
            with monkeypatch.context() as patch:
                assert products_of(replaced(LAYERS[kind]()), maps(), patch) == 0, kind


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.Conv2d(CHANNELS, 256, 3, padding=1, stride=2),
        lambda: nn.Conv2d(CHANNELS, 256, 3),
        lambda: nn.Conv2d(CHANNELS, 256, 3, padding="same"),
        lambda: nn.Conv2d(CHANNELS, 256, 3, padding=1, padding_mode="reflect"),
        lambda: nn.Conv2d(CHANNELS, 192, 3, padding=1, groups=CHANNELS),
        lambda: nn.Conv2d(CHANNELS, 256, 5, padding=2),
        lambda: nn.Conv2d(16, 16, 3, padding=1),
        lambda: StdConv2d(CHANNELS, 256, 3, padding=1),
    ],
)
def test_other_layers_stay(other: Any) -> None:
    layer = other()
    assert replaced(layer) is layer


def test_a_resnet_has_them_under_the_names_of_its_weights() -> None:
    network = build_network(NetworkSettings(name="resnet18", image_size=64), n_classes=7)
    block: Any = network.stage("layer4")[1]  # type: ignore[index]
    assert type(block.conv1) is SmallMaps
    assert network.original_names["layer4.1.conv1.weight"] == "stages.layer4.1.conv1.weight"
