"""IRM's penalty against autograd by the scale, hand-worked numbers and all pairs of images."""

import math
from itertools import permutations

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.methods.base import Progress
from unseen.methods.irm import IRM, by_scale

pytestmark = pytest.mark.usefixtures("in_double_precision")
LATE = Progress(5, 10)
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]


def make(**settings) -> IRM:
    task = Task(("a", "b", "c"), ("k", "l", "m"))
    method = IRM(tiny_network(), task, IRM.Config(name="irm", **settings))
    with torch.no_grad():
        method.network.stage("fc2").weight.mul_(4)  # scores that are large enough to matter
    return method


def test_the_derivative_by_hand() -> None:
    """Scores (ln 3, 0) have chances 3/4 and 1/4: (3/4 − 1) ln 3 for class 0, 3/4 ln 3 for 1."""
    scores = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    found = by_scale(scores, torch.tensor([0, 1])).tolist()
    assert found == pytest.approx([-0.25 * math.log(3), 0.75 * math.log(3)])


def test_the_derivative_is_that_of_autograd() -> None:
    scores, labels = torch.randn(5, 3, dtype=torch.float64), torch.arange(5) % 3
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = functional.cross_entropy(scale * scores, labels)
    (expected,) = torch.autograd.grad(loss, scale)
    torch.testing.assert_close(by_scale(scores, labels).mean(), expected)


def penalty_by_pairs(method: IRM, batch: DomainBatch) -> torch.Tensor:
    """The mean product over ordered pairs of different images, by autograd; mean over domains."""
    parts = []
    for domain in sorted(set(batch.domains.tolist())):
        own = batch.domains == domain
        scores, labels = method.network(batch.images[own].double()), batch.labels[own]
        slopes = []
        for score, label in zip(scores, labels, strict=True):
            scale = torch.ones((), dtype=torch.float64, requires_grad=True)
            loss = functional.cross_entropy((scale * score)[None], label[None])
            slopes += torch.autograd.grad(loss, scale, create_graph=True)
        pairs = [a * b for a, b in permutations(slopes, 2)]
        parts.append(torch.stack(pairs).mean() if pairs else 0 * scores.sum())
    return torch.stack(parts).mean()


@pytest.mark.parametrize("domains", [DOMAINS, [0, 0, 0, 0, 2]], ids=["all", "missing and single"])
def test_the_penalty_is_the_product_of_two_images_derivatives(domains: list[int]) -> None:
    method = make(penalty_weight=30.0)
    batch = batch_of(domains, 3)
    expected = penalty_by_pairs(method, batch)
    assert expected.abs() > 1e-4
    losses = method.loss(batch, LATE)
    torch.testing.assert_close(losses["penalty"], expected.detach())
    by_domain = [
        functional.cross_entropy(method.network(batch.images[own].double()), batch.labels[own])
        for own in (batch.domains == d for d in sorted(set(domains)))
    ]
    whole = torch.stack(by_domain).mean() + 30.0 * expected
    torch.testing.assert_close(losses["loss"], whole)
    torch.testing.assert_close(gradients(losses["loss"], method), gradients(whole, method))


def test_the_penalty_has_weight_one_at_first() -> None:
    method = make(penalty_weight=30.0, penalty_anneal=0.3)
    for step, weight in ((2, 1.0), (3, 30.0)):
        losses = method.loss(batch_of(DOMAINS, 3), Progress(step, 10))
        torch.testing.assert_close(losses["loss"], losses["task"] + weight * losses["penalty"])


def test_two_devices_compute_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(), batch_of(DOMAINS, 3)
    halves = [rows(batch, [0, 3, 4, 5]), rows(batch, [1, 2, 6, 7])]
    found = gradients_of_two(method, halves, LATE, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, LATE))
