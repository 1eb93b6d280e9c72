"""SagNet: styles and contents that change places, and who learns from what."""

import pytest
import torch
from tests.methods.batches import batch_of, build, gradients, largest, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.methods.base import Progress
from unseen.methods.sagnet import SagNet, following, style
from unseen.networks.stages import Network

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 1, 1, 1]


def network(norm: bool = False) -> Network:
    """A convolution that gives maps of 2 × 2 places, and a tail behind them."""
    torch.manual_seed(0)
    tail = [nn.Flatten(), nn.Linear(16, 5), *([nn.BatchNorm1d(5)] if norm else []), nn.Tanh()]
    stages = {
        "conv": nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh()),
        "hidden": nn.Sequential(*tail),
        "fc": nn.Linear(5, 3),
    }
    return network_of(stages, sites=("hidden", "fc"))


def make(norm: bool = False, **settings) -> SagNet:
    method = build("sagnet", network(norm), **settings)
    with torch.no_grad():  # or the style network would still be the tail that it was copied from
        for parameter in method.style_network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return method


def test_the_style_by_hand() -> None:
    maps = torch.tensor([[[[1.0, 3.0], [1.0, 3.0]], [[5.0, 5.0], [5.0, 5.0]]]])
    mean, deviation = style(maps, 1)
    assert mean.flatten().tolist() == [2.0, 5.0]
    assert deviation.flatten().tolist() == pytest.approx([(1 + 1e-5) ** 0.5, 1e-5**0.5])
    tokens = maps.flatten(2).transpose(1, 2)  # [images, places, channels]
    assert style(tokens, -1)[0].flatten().tolist() == [2.0, 5.0]
    flat = torch.tensor([[1.0, 3.0], [5.0, 5.0]])  # no places: over all features
    assert style(flat, 1)[0].flatten().tolist() == [2.0, 5.0]


def test_the_next_image_is_that_of_the_next_key() -> None:
    keys, values = torch.tensor([30, 10, 40, 20]), torch.tensor([3.0, 1.0, 4.0, 2.0])
    (found,) = following(keys, values)
    assert found.tolist() == [4.0, 2.0, 1.0, 3.0]


def parts(method: SagNet, batch: DomainBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Features, and the same with another style and with another content, image by image."""
    z = method.network.run(batch.images, until="hidden")
    order = batch.keys.argsort().tolist()
    partner = {order[n]: order[(n + 1) % len(order)] for n in range(len(order))}
    restyled, refilled = [], []
    for place in range(len(z)):
        own, other, share = z[place], z[partner[place]], uniform(batch.keys, 1, 1)[place]
        (m, s), (mo, so) = (style(each[None], 1) for each in (own, other))
        new_mean, new_deviation = share * m + (1 - share) * mo, share * s + (1 - share) * so
        restyled.append((own - m) / s * new_deviation + new_mean)
        refilled.append((other.detach() - mo.detach()) / so.detach() * s + m)
    return z, torch.cat(restyled), torch.cat(refilled)


def test_who_learns_what() -> None:
    method, batch = make(adversarial_weight=0.4), batch_of(DOMAINS)
    _, restyled, refilled = parts(method, batch)
    (tail,) = method.style_network
    content = functional.cross_entropy(method.network.run(restyled, since="hidden"), batch.labels)
    style_loss = functional.cross_entropy(tail(refilled), batch.labels)
    adversarial = -tail(refilled).log_softmax(dim=1).mean()
    losses = method.loss(batch, START)
    torch.testing.assert_close(losses["loss"], content + style_loss + 0.4 * adversarial)
    by_style = gradients(style_loss, tail)
    torch.testing.assert_close(gradients(losses["loss"], tail), by_style)
    network = method.network
    expected = gradients(content + 0.4 * adversarial, network)
    torch.testing.assert_close(gradients(losses["loss"], network), expected)
    assert largest(gradients(adversarial, network)) > 1e-4
    assert largest(gradients(style_loss, network)) > 1e-4  # which the loss leaves out


def test_the_site_and_what_is_new() -> None:
    assert make().site == "hidden"
    assert make(site="fc").site == "fc"
    frozen = network()
    frozen.freeze("hidden")
    (remark,) = build("sagnet", frozen).remarks
    assert "nothing before 'hidden' learns, so the adversary changes nothing" in remark
