"""Images between domains: those that Mixup mixes, those whose style and content change places in
SagNet, and those that CrossGrad moves, against cases worked by hand."""

import numpy as np
import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build, gradients, largest, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.methods.base import Progress
from unseen.methods.crossgrad import CrossGrad
from unseen.methods.mixup import beta_quantile, partners
from unseen.methods.sagnet import SagNet, following, style
from unseen.networks.stages import Network

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def places(domains: list[int], step: int = 0) -> list[int]:
    """The place of each image's partner."""
    batch = batch_of(domains, 3, step, dtype=torch.float64)
    images, labels = partners(batch, batch.images)
    found = [int((batch.images == image).all(dim=(1, 2, 3)).nonzero()) for image in images]
    assert torch.equal(labels, batch.labels[found])
    return found


def test_partners_are_of_the_next_domain_in_a_circle() -> None:
    found = [places(DOMAINS, step) for step in range(20)]
    assert all(sorted(each) == list(range(9)) for each in found)  # everybody is somebody's partner
    steps = [{(DOMAINS[p] - d) % 3 for p, d in zip(each, DOMAINS, strict=True)} for each in found]
    assert {frozenset(each) for each in steps} == {frozenset({1}), frozenset({2})}
    assert len({tuple(each) for each in found}) > 10


def test_batches_that_are_not_balanced() -> None:
    domains = [0, 0, 0, 0, 2]  # one domain is missing, one has a single image
    assert places(domains)[:4] == [4, 4, 4, 4]
    assert places([1, 1]) == [0, 1]  # nobody else is there


def test_mixups_loss_is_that_of_mixed_images_and_both_labels() -> None:
    method, batch = build("mixup", domains=3, alpha=1.0), batch_of(DOMAINS, 3, dtype=torch.float64)
    others, shares = places(DOMAINS), method._shares(batch)
    assert len(set(shares.tolist())) == 3
    assert all(0.02 < share < 0.98 for share in shares.tolist())  # or nothing is tested
    total = torch.zeros(())
    for place, (other, share) in enumerate(zip(others, shares, strict=True)):
        mixed = share * batch.images[place] + (1 - share) * batch.images[other]
        logs = method.network(mixed[None]).log_softmax(dim=1)[0]
        own, its = logs[batch.labels[place]], logs[batch.labels[other]]
        total = total - (share * own + (1 - share) * its) / 9
    assert_loss(method.loss(batch, START)["loss"], total, method)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    """Mean 1/2, variance 1 / (4 (2α + 1)); α = 1 leaves uniform numbers as they are."""
    chances = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    found = beta_quantile(chances, alpha)
    assert found.mean().item() == pytest.approx(0.5)
    assert found.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=2e-3)
    if alpha == 1.0:
        np.testing.assert_allclose(found.numpy(), chances.numpy())


def with_maps(norm: bool = False) -> Network:
    """A convolution that gives maps of 2 × 2 places, and a tail behind them."""
    torch.manual_seed(0)
    tail = [nn.Flatten(), nn.Linear(16, 5), *([nn.BatchNorm1d(5)] if norm else []), nn.Tanh()]
    stages = {
        "conv": nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh()),
        "hidden": nn.Sequential(*tail),
        "fc": nn.Linear(5, 3),
    }
    return network_of(stages, sites=("hidden", "fc"))


def sagnet(norm: bool = False, **settings) -> SagNet:
    method = build("sagnet", with_maps(norm), **settings)
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
    method, batch = sagnet(adversarial_weight=0.4), batch_of([0, 0, 0, 1, 1, 1])
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
    assert sagnet().site == "hidden"
    assert sagnet(site="fc").site == "fc"
    frozen = with_maps()
    frozen.freeze("hidden")
    (remark,) = build("sagnet", frozen).remarks
    assert "nothing before 'hidden' learns, so the adversary changes nothing" in remark


def crossgrad(network: Network | None = None, **settings: float) -> CrossGrad:
    """Scores are a linear function of the 12 numbers of a 3×2×2 image."""
    torch.manual_seed(0)
    linear = network_of({"flatten": nn.Flatten(), "fc": nn.Linear(12, 2)})
    method = build("crossgrad", network or linear, domains=3, **settings)
    for parameter in method.parameters():
        nn.init.normal_(parameter)
    return method


def two_classes(n: int = 6) -> DomainBatch:
    """Two classes, three domains, all in turn."""
    batch = batch_of([place % 3 for place in range(n)], 3)
    return batch._replace(labels=batch.positions % 2)


def gradient_by_hand(layer: nn.Linear, images: Tensor, targets: Tensor) -> Tensor:
    """∂CE/∂x of each image's own loss at a linear layer is Wᵀ(softmax − one-hot)."""
    residual = layer(images.flatten(1)).softmax(1) - functional.one_hot(targets, layer.out_features)
    return (residual @ layer.weight).view_as(images).detach()


def test_crossgrads_losses_are_those_of_the_formula() -> None:
    """Each network learns from images moved up the *other's* clipped gradient, each by its ε, α.
    Moved images are constants: the gradient is that of the formula with x_d and x_l held fixed."""
    steps = {"label_step": 0.7, "domain_step": 1.9, "clip": 0.2}
    method = crossgrad(label_weight=0.3, domain_weight=0.8, **steps)
    label, domain = method.network.stage("fc"), method.domain_network[-1][1]
    batch = two_classes()
    x = batch.images
    x_d = x + 0.7 * gradient_by_hand(domain, x, batch.domains).clamp(-0.2, 0.2)
    x_l = x + 1.9 * gradient_by_hand(label, x, batch.labels).clamp(-0.2, 0.2)

    def risk(layer: nn.Linear, images: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(layer(images.flatten(1)), targets)

    task = 0.7 * risk(label, x, batch.labels) + 0.3 * risk(label, x_d, batch.labels)
    domains = 0.2 * risk(domain, x, batch.domains) + 0.8 * risk(domain, x_l, batch.domains)
    losses = method.loss(batch, START)
    torch.testing.assert_close(losses["task"], task.detach())
    assert_loss(losses["loss"], task + domains, method)


def test_steps_do_not_depend_on_the_batch_size() -> None:
    """The loss of two equal halves is the loss of one of them."""
    method = crossgrad(clip=100.0)
    half = two_classes()
    whole = DomainBatch(
        *(torch.cat([t, t]) for t in half[:4]), 3, *(t.repeat(2) for t in half[5:7])
    )
    torch.testing.assert_close(method.loss(whole, START)["loss"], method.loss(half, START)["loss"])
