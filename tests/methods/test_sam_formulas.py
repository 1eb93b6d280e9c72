"""SAM and SAGM: the gradient at moved weights, in closed form and to first order."""

from functools import partial

import pytest
import torch
from tests.methods.batches import batch_of, build, gradients
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.sam import SAM

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]
make = partial(build, "sam")


def norm(tensors: list[Tensor]) -> float:
    return torch.cat([t.flatten() for t in tensors]).norm().item()


def risk(method: SAM, batch: DomainBatch) -> Tensor:
    return functional.cross_entropy(method.network(batch.images), batch.labels)


def at(method: SAM, batch: DomainBatch, gradient: list[Tensor], length: float) -> list[Tensor]:
    """The gradient where the weights are moved by a multiple of this one."""
    before = [p.detach().clone() for p in method.parameters()]
    with torch.no_grad():
        for parameter, direction in zip(method.parameters(), gradient, strict=True):
            parameter.add_(length * direction)
    found = gradients(risk(method, batch), method)
    with torch.no_grad():
        for parameter, value in zip(method.parameters(), before, strict=True):
            parameter.copy_(value)
    return found


@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_the_gradient_is_that_of_weights_moved_up(radius: float) -> None:
    method, batch = make(radius=radius), batch_of(DOMAINS)
    plain = gradients(risk(method, batch), method)
    expected = at(method, batch, plain, radius / norm(plain))
    losses = method.loss(batch, START)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)
    difference = norm([a - b for a, b in zip(expected, plain, strict=True)])
    assert (difference > 1e-2) == (radius > 0)
    torch.testing.assert_close(losses["loss"], losses["task"] + losses["sharpness"])
    assert (losses["sharpness"] > 1e-2) == (radius > 0)
    torch.testing.assert_close(losses["task"], risk(method, batch).detach())


def test_alignment_adds_the_loss_itself_and_a_step_down() -> None:
    method, batch = make(radius=0.5, alignment=0.3), batch_of(DOMAINS)
    plain = gradients(risk(method, batch), method)
    moved = at(method, batch, plain, 0.5 / norm(plain) - 0.3)
    expected = [a + b for a, b in zip(plain, moved, strict=True)]
    losses = method.loss(batch, START)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)
    whole = 2 * losses["task"] + losses["sharpness"]
    torch.testing.assert_close(losses["loss"].detach(), whole)
    without = make(radius=0.5, alignment=0.0).loss(batch, START)["loss"]
    assert losses["loss"] < without  # −α ∇L(θ) · ∇L(θ + ε)
