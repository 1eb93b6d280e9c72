"""CrossGrad's mathematics against a linear model worked by hand."""

import torch
from tests.methods import batches
from tests.methods.batches import assert_loss, build, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.crossgrad import CrossGrad
from unseen.networks.stages import Network

STEP = Progress(0, 1)


def make(network: Network | None = None, **settings: float) -> CrossGrad:
    """Scores are a linear function of the 12 numbers of a 3×2×2 image."""
    torch.manual_seed(0)
    linear = network_of({"flatten": nn.Flatten(), "fc": nn.Linear(12, 2)})
    method = build("crossgrad", network or linear, domains=3, **settings)
    for parameter in method.parameters():
        nn.init.normal_(parameter)
    return method


def batch_of(n: int = 6) -> DomainBatch:
    """Two classes, three domains, all in turn."""
    batch = batches.batch_of([place % 3 for place in range(n)], 3)
    return batch._replace(labels=batch.positions % 2)


def gradient_by_hand(layer: nn.Linear, images: Tensor, targets: Tensor) -> Tensor:
    """∂CE/∂x of each image's own loss at a linear layer is Wᵀ(softmax − one-hot)."""
    residual = layer(images.flatten(1)).softmax(1) - functional.one_hot(targets, layer.out_features)
    return (residual @ layer.weight).view_as(images).detach()


def layers(method: CrossGrad) -> tuple[nn.Linear, nn.Linear]:
    label, domain = method.network.stage("fc"), method.domain_network[-1][1]
    assert isinstance(label, nn.Linear)
    assert isinstance(domain, nn.Linear)
    return label, domain


def clipped(gradient: Tensor, bound: float = 0.1) -> Tensor:
    return gradient.clamp(-bound, bound)


def test_both_losses_are_those_of_the_formula() -> None:
    """Each network learns from images moved up the *other's* clipped gradient, each by its ε, α."""
    method = make(label_step=0.7, domain_step=1.9, label_weight=0.3, domain_weight=0.8, clip=0.2)
    label, domain = layers(method)
    batch = batch_of()
    x = batch.images
    x_d = x + 0.7 * clipped(gradient_by_hand(domain, x, batch.domains), 0.2)
    x_l = x + 1.9 * clipped(gradient_by_hand(label, x, batch.labels), 0.2)
    task = 0.7 * functional.cross_entropy(label(x.flatten(1)), batch.labels)
    task = task + 0.3 * functional.cross_entropy(label(x_d.flatten(1)), batch.labels)
    domains = 0.2 * functional.cross_entropy(domain(x.flatten(1)), batch.domains)
    domains = domains + 0.8 * functional.cross_entropy(domain(x_l.flatten(1)), batch.domains)
    losses = method.loss(batch, STEP)
    torch.testing.assert_close(losses["task"], task.detach())
    torch.testing.assert_close(losses["domain"], domains.detach())
    # moved images are constants: the gradient is that of the formula with x_d and x_l held fixed
    assert_loss(losses["loss"], task + domains, method)


def test_steps_do_not_depend_on_the_batch_size() -> None:
    """The loss of two equal halves is the loss of one of them."""
    method = make(clip=100.0)
    half = batch_of()
    whole = DomainBatch(
        *(torch.cat([t, t]) for t in half[:4]), 3, *(t.repeat(2) for t in half[5:7])
    )
    torch.testing.assert_close(method.loss(whole, STEP)["loss"], method.loss(half, STEP)["loss"])
