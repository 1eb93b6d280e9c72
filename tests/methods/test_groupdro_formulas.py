"""GroupDRO's weights against a case worked by hand and algorithm 1 step by step."""

import math

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build
from torch import Tensor
from torch.nn import functional

from unseen.methods.base import Progress
from unseen.methods.groupdro import GroupDRO

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]


def weights(method: GroupDRO) -> list[float]:
    return list(method.statistics()["domain_weights"].values())


def with_losses(monkeypatch: pytest.MonkeyPatch, *losses: float) -> GroupDRO:
    """η is 1, and the domains have these losses in every step."""
    found = (torch.tensor(losses, dtype=torch.float64, requires_grad=True), None)
    monkeypatch.setattr("unseen.methods.groupdro.group_means", lambda *_: found)
    return build("groupdro", weight_step=1.0)


def test_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses 0 and ln 3: 1/2 : 3/2, then 1/4 : 9/4 of what was 1/4 : 3/4."""
    method = with_losses(monkeypatch, 0.0, math.log(3))
    assert weights(method) == pytest.approx([0.5, 0.5])
    first = method.loss(batch_of(DOMAINS), START)["loss"]
    assert weights(method) == pytest.approx([0.25, 0.75])
    assert first.item() == pytest.approx(0.75 * math.log(3))
    method.loss(batch_of(DOMAINS), START)
    assert weights(method) == pytest.approx([0.1, 0.9])


def test_no_loss_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    method = with_losses(monkeypatch, 1e4, 0.0)
    assert method.loss(batch_of(DOMAINS), START)["loss"].item() == pytest.approx(1e4)
    assert weights(method) == [1.0, 0.0]


def test_the_gradient_is_weighted_and_the_weights_are_constants() -> None:
    method, batch = build("groupdro", weight_step=20.0), batch_of(DOMAINS)
    scores: Tensor = method.network(batch.images)
    parts = (slice(4), slice(4, 8))
    first, second = (functional.cross_entropy(scores[p], batch.labels[p]) for p in parts)
    shares = (20.0 * torch.stack([first, second]).detach()).softmax(dim=0)
    assert (shares[0] - shares[1]).abs() > 0.05
    losses = method.loss(batch, START)
    assert_loss(losses["loss"], shares[0] * first + shares[1] * second, method)
    assert losses["worst"] == max(first, second)
    assert (first > second) == (weights(method)[0] > weights(method)[1])


def test_a_domain_without_images_keeps_its_share_of_the_others() -> None:
    method = build("groupdro", weight_step=1.0)
    losses = method.loss(batch_of([0, 0, 0]), START)
    risk = losses["unweighted"].item()
    grown = math.exp(risk) / (math.exp(risk) + 1)
    assert weights(method) == pytest.approx([grown, 1 - grown])
    assert losses["loss"].item() == pytest.approx(grown * risk)
