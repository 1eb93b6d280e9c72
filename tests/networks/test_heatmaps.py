"""Where a network looks: Grad-CAM against a case by hand, and against what gives a class away."""

from functools import partial

import pytest
import torch
from tests.contract.test_methods_contract import FORMS, adapts, batch, make
from torch import Tensor, nn

from unseen.methods.base import Progress
from unseen.networks.backbones import build_network
from unseen.networks.heatmaps import heatmaps, place_site
from unseen.networks.layers import MeanPool
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import NetworkSettings


class Known(nn.Module):
    """Two channels of 2 x 2 places, whatever the image, scaled by its first pixel."""

    values = torch.tensor([[[4.0, 0.0], [2.0, 0.0]], [[0.0, 6.0], [1.0, 2.0]]])

    def forward(self, x: Tensor) -> Tensor:
        return self.values * x[:, :1, :1, :1]


def linear_network() -> Network:
    head = nn.Linear(2, 3)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, -1.0], [0.0, 1.0], [-1.0, -1.0]]))
        head.bias.zero_()
    stages = {"features": Known(), "pool": MeanPool(), "head": head}
    return Network(stages, ImageInput(4, (0.5,) * 3, (0.5,) * 3), ("head",))


def test_places_are_weighted_by_the_gradient_of_the_score() -> None:
    """Class 0 weighs the channels 1 and -1, each by a quarter: (4 -6; 1 -2) / 4, and what speaks
    against it is cut; class 1: (0 6; 1 2) / 4; nothing speaks for class 2."""
    network = linear_network()
    images = torch.ones(3, 3, 4, 4) * torch.tensor([1.0, 2.0, 3.0])[:, None, None, None]
    expected = torch.tensor([[[1, 0], [0.25, 0]], [[0, 1], [1 / 6, 2 / 6]], [[0, 0], [0, 0]]])
    found = heatmaps(network, network, network, images, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(found, expected)
    answered = heatmaps(network, network, network, images)  # means 1.5 and 2.25: class 1
    torch.testing.assert_close(answered, expected[[1, 1, 1]])
    assert torch.is_grad_enabled()
    assert not answered.requires_grad


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize("form", FORMS)
def test_every_method_has_them_and_images_of_a_batch_are_apart(form: str) -> None:
    method, images = make(form).eval(), batch().images[:5]
    method.loss(batch(target=adapts(form)), Progress(9, 10))  # some remember what they saw
    for domain in (None, 1):
        predict = partial(method.predict, domain=domain)
        found = heatmaps(method, method.network, predict, images)
        one = heatmaps(method, method.network, predict, images[3:4])
        assert len(found) == 5
        torch.testing.assert_close(found[3:4], one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "site", "side"),
    [
        ("resnet18", "pool", 2),
        ("efficientnet_lite0", "pool", 2),
        ("vit_tiny_patch16_224", "blocks.11", 4),
    ],
)
def test_sites_of_backbones(name: str, site: str, side: int) -> None:
    network = build_network(NetworkSettings(name=name, pretrained=False, image_size=64), 3).eval()
    assert place_site(network) == site
    found = heatmaps(network, network, network, torch.randn(2, 3, 64, 64))
    assert found is not None
    assert found.shape == (2, side, side)
    assert 0 <= found.min() <= found.max() <= 1


def test_a_watermark_that_gives_the_class_away_is_what_the_map_shows() -> None:
    torch.manual_seed(0)
    labels = torch.arange(64) % 2
    images = 0.3 * torch.rand(64, 3, 32, 32)
    images[labels == 1, :, 22:30, 20:28] += 2.0
    network = build_network(NetworkSettings(name="small_cnn"), 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    marked = images[labels == 1]
    found = heatmaps(network, network, network.eval(), marked)
    assert (network(marked).argmax(dim=1) == 1).all()
    half = found.shape[1] // 2
    at_mark = found[:, half:, half:].amax(dim=(1, 2)) == found.amax(dim=(1, 2))
    assert at_mark.float().mean() > 0.9
