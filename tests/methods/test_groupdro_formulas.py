"""GroupDRO's weights against a case worked by hand and algorithm 1 step by step."""

import math

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch.nn import functional

from unseen.data.batch import Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.groupdro import GroupDRO

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]


def make(**settings) -> GroupDRO:
    task = Task(("a", "b", "c"), ("k", "l"))
    return GroupDRO(tiny_network(), task, GroupDRO.Config(name="groupdro", **settings))


def risks(method: GroupDRO) -> list[torch.Tensor]:
    batch = batch_of(DOMAINS)
    scores = method.network(batch.images.double())
    return [functional.cross_entropy(scores[p], batch.labels[p]) for p in (slice(4), slice(4, 8))]


def weights(method: GroupDRO) -> list[float]:
    return list(method.statistics()["domain_weights"].values())


def test_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses 0 and ln 3 with η = 1: 1/2 : 3/2, then 1/4 : 9/4 of what was 1/4 : 3/4."""
    found = (torch.tensor([0.0, math.log(3)], dtype=torch.float64, requires_grad=True), None)
    monkeypatch.setattr("unseen.methods.groupdro.group_means", lambda *_: found)
    method = make(weight_step=1.0)
    assert weights(method) == pytest.approx([0.5, 0.5])
    first = method.loss(batch_of(DOMAINS), START)["loss"]
    assert weights(method) == pytest.approx([0.25, 0.75])
    assert first.item() == pytest.approx(0.75 * math.log(3))
    method.loss(batch_of(DOMAINS), START)
    assert weights(method) == pytest.approx([0.1, 0.9])


def test_the_gradient_is_weighted_and_the_weights_are_constants() -> None:
    method = make(weight_step=20.0)
    first, second = risks(method)
    shares = torch.stack([first, second]).detach().mul(20.0).exp()
    shares = shares / shares.sum()
    assert (shares[0] - shares[1]).abs() > 0.05
    expected = gradients(shares[0] * first + shares[1] * second, method)
    losses = method.loss(batch_of(DOMAINS), START)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)
    assert losses["worst"] == max(first, second)
    assert (first > second) == (weights(method)[0] > weights(method)[1])


def test_a_domain_without_images_keeps_its_share_of_the_others() -> None:
    method = make(weight_step=1.0)
    losses = method.loss(batch_of([0, 0, 0]), START)
    risk = losses["unweighted"].item()
    grown = math.exp(risk) / (math.exp(risk) + 1)
    assert weights(method) == pytest.approx([grown, 1 - grown])
    assert losses["loss"].item() == pytest.approx(grown * risk)


def test_no_loss_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (torch.tensor([1e4, 0.0], dtype=torch.float64, requires_grad=True), None)
    monkeypatch.setattr("unseen.methods.groupdro.group_means", lambda *_: found)
    method = make(weight_step=1.0)
    assert method.loss(batch_of(DOMAINS), START)["loss"].item() == pytest.approx(1e4)
    assert weights(method) == [1.0, 0.0]


def test_two_devices_compute_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(weight_step=2.0), batch_of(DOMAINS)
    halves = [rows(batch, [0, 1, 2, 4]), rows(batch, [3, 5, 6, 7])]
    found = gradients_of_two(method, halves, START, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, START))


def test_one_domain_is_always_the_worst() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\)"):
        GroupDRO(tiny_network(), Task(("a", "b", "c"), ("k",)), GroupDRO.Config(name="groupdro"))
