"""Fishr's variances against per-image gradients by autograd; the moving average by hand."""

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.fishr import Fishr
from unseen.networks.stages import ImageInput, Network

pytestmark = pytest.mark.usefixtures("in_double_precision")
LATE = Progress(5, 10)
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]
TASK = Task(("a", "b", "c"), ("k", "l", "m"))


def make(**settings) -> Fishr:
    return Fishr(tiny_network(), TASK, Fishr.Config(name="fishr", **settings))


def variances(method: Fishr, batch: DomainBatch) -> Tensor:
    """By one backward an image; `[domains, classes, features + 1]`, differentiable."""
    found = []
    head = list(method.network.stage("fc2").parameters())
    for domain in range(3):
        each = []
        for place in (batch.domains == domain).nonzero().flatten().tolist():
            image, label = batch.images[place : place + 1], batch.labels[place : place + 1]
            loss = functional.cross_entropy(method.network(image), label)
            weight, bias = torch.autograd.grad(loss, head, create_graph=True)
            each.append(torch.cat([weight, bias[:, None]], dim=1))
        found.append(torch.stack(each).var(dim=0, correction=0))
    return torch.stack(found)


def apart(v: Tensor) -> Tensor:
    return torch.stack([(v[d] - v.mean(dim=0)).square().mean() for d in range(3)]).mean()


def test_the_penalty_is_that_of_per_image_gradients() -> None:
    """Without a memory, with the gradient of the whole loss by all weights."""
    method, batch = make(memory=0.0, penalty_weight=50.0), batch_of(DOMAINS, 3)
    penalty = apart(variances(method, batch))
    assert penalty > 1e-5
    task = functional.cross_entropy(method.network(batch.images), batch.labels)
    losses = method.loss(batch, LATE)
    torch.testing.assert_close(losses["penalty"], penalty)
    torch.testing.assert_close(losses["loss"], task + 50.0 * penalty)
    expected = gradients(task + 50.0 * penalty, method)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)


def test_the_variances_are_a_moving_average_by_domain() -> None:
    """After two steps γ (1 − γ) v₁ + (1 − γ) v₂, which the penalty divides by 1 − γ; v₁ is a
    constant in it."""
    method = make(memory=0.75, penalty_weight=50.0)
    first, second = (batch_of(DOMAINS, 3, step) for step in (0, 1))
    v1, v2 = variances(method, first).detach(), variances(method, second)
    method.loss(first, LATE)
    torch.testing.assert_close(method.variances, 0.25 * v1)
    losses = method.loss(second, LATE)
    torch.testing.assert_close(method.variances, 0.75 * 0.25 * v1 + 0.25 * v2.detach())
    penalty = apart(0.75 * v1 + v2)
    torch.testing.assert_close(losses["penalty"], penalty.detach())
    task = functional.cross_entropy(method.network(second.images), second.labels)
    expected = gradients(task + 50.0 * penalty, method)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)


def test_a_domain_without_images_keeps_its_average() -> None:
    method = make(memory=0.75)
    method.loss(batch_of(DOMAINS, 3), LATE)
    before = method.variances.clone()
    method.loss(batch_of([0, 0, 0, 2, 2], 3, step=1), LATE)
    same = [torch.equal(a, b) for a, b in zip(before, method.variances, strict=True)]
    assert same == [False, True, False]


def test_the_penalty_begins_late() -> None:
    for step, weight in ((2, 0.0), (3, 50.0)):
        method = make(penalty_weight=50.0, penalty_anneal=0.3)
        losses = method.loss(batch_of(DOMAINS, 3), Progress(step, 10))
        torch.testing.assert_close(losses["loss"], losses["task"] + weight * losses["penalty"])


def test_two_devices_compute_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(), batch_of(DOMAINS, 3)
    halves = [rows(batch, [0, 3, 4, 5]), rows(batch, [1, 2, 6, 7])]
    found = gradients_of_two(method, halves, LATE, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, LATE))


def test_what_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\)"):
        Fishr(tiny_network(), Task(("a", "b", "c"), ("k",)), Fishr.Config(name="fishr"))
    stages = {"flatten": nn.Flatten(), "head": nn.Sequential(nn.Linear(12, 3))}
    network = Network(stages, ImageInput(2, (0.5,) * 3, (0.5,) * 3), mask_sites=())
    with pytest.raises(SettingsError, match=r"one linear classifier, found Sequential as .*'head'"):
        Fishr(network, TASK, Fishr.Config(name="fishr"))
