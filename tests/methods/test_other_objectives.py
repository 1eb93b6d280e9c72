"""What takes the place of the mean loss: weighted domains (GroupDRO), muted features (RSC), and the
loss at weights that are moved (SAM, SAGM)."""

import copy
import math
from functools import partial

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build, gradients
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.groupdro import GroupDRO
from unseen.methods.rsc import RSC, smallest_among_largest
from unseen.methods.sam import SAM

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]
rsc, sam = partial(build, "rsc"), partial(build, "sam")


def weights(method: GroupDRO) -> list[float]:
    return list(method.statistics()["domain_weights"].values())


def with_losses(monkeypatch: pytest.MonkeyPatch, *losses: float) -> GroupDRO:
    """η is 1, and the domains have these losses in every step."""
    found = (torch.tensor(losses, dtype=torch.float64, requires_grad=True), None)
    monkeypatch.setattr("unseen.methods.groupdro.group_means", lambda *_: found)
    return build("groupdro", weight_step=1.0)


def test_groupdros_weights_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_largest_of_each_row() -> None:
    values = torch.tensor([[1.0, -5.0, 3.0, 2.0], [0.0, 9.0, -1.0, 8.0]])
    assert smallest_among_largest(values, 0.5).tolist() == [2, 8]
    assert smallest_among_largest(values, 0.1).isinf().all()  # less than half a number


def rsc_by_hand(method: RSC, batch: DomainBatch, n_features: int, n_images: int) -> Tensor:
    """The loss, image by image: of a linear classifier the gradient is the label's weights."""
    head = method.network.stage("fc2")
    features = method.network.run(batch.images, until="fc2")
    muted = features.clone()
    for place, label in enumerate(batch.labels):
        muted[place, head.weight[label].topk(n_features).indices] = 0
    chances = [
        head(z).softmax(dim=1).gather(1, batch.labels[:, None])[:, 0] for z in (features, muted)
    ]
    chosen = (chances[0] - chances[1]).topk(n_images).indices
    used = features.index_copy(0, chosen, muted[chosen])
    return functional.cross_entropy(head(used), batch.labels)


def test_features_are_muted_in_images_that_lose_the_most() -> None:
    """Two of four features in three of eight images; without a share nothing is muted."""
    shares, batch = {"feature_share": 0.5, "image_share": 3 / 8}, batch_of(DOMAINS)
    method = rsc(**shares)
    losses = method.loss(batch, START)
    assert_loss(losses["loss"], rsc_by_hand(method, batch, 2, 3), method)
    assert losses["muted"].item() == pytest.approx(0.5 * 3 / 8)
    plain = functional.cross_entropy(method.network(batch.images), batch.labels)
    assert losses["loss"] > plain + 1e-3  # it is a challenge
    for share in shares:
        found = rsc(**shares | {share: 0.0}).loss(batch, START)["loss"]
        torch.testing.assert_close(found, plain)


def norm(tensors: list[Tensor]) -> float:
    return torch.cat([t.flatten() for t in tensors]).norm().item()


def risk(method: SAM, batch: DomainBatch) -> Tensor:
    return functional.cross_entropy(method.network(batch.images), batch.labels)


def at(method: SAM, batch: DomainBatch, gradient: list[Tensor], length: float) -> list[Tensor]:
    """The gradient where the weights are moved by a multiple of this one."""
    moved = copy.deepcopy(method)
    with torch.no_grad():
        for parameter, direction in zip(moved.parameters(), gradient, strict=True):
            parameter.add_(length * direction)
    return gradients(risk(moved, batch), moved)


@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_the_gradient_is_that_of_weights_moved_up(radius: float) -> None:
    method, batch = sam(radius=radius), batch_of(DOMAINS)
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
    method, batch = sam(radius=0.5, alignment=0.3), batch_of(DOMAINS)
    plain = gradients(risk(method, batch), method)
    moved = at(method, batch, plain, 0.5 / norm(plain) - 0.3)
    expected = [a + b for a, b in zip(plain, moved, strict=True)]
    losses = method.loss(batch, START)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)
    whole = 2 * losses["task"] + losses["sharpness"]
    torch.testing.assert_close(losses["loss"].detach(), whole)
    without = sam(radius=0.5, alignment=0.0).loss(batch, START)["loss"]
    assert losses["loss"] < without  # −α ∇L(θ) · ∇L(θ + ε)
