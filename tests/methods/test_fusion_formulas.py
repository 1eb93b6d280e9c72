"""Best sources forward: the fused score against numbers worked by hand."""

import math

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build, gradients, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.fusion import Fusion

STEP = Progress(0, 1)


def two_classes() -> DomainBatch:
    batch = batch_of([0, 1, 0, 1, 0, 1])
    return batch._replace(labels=batch.positions // 2 % 2)


def make(**settings: object) -> Fusion:
    torch.manual_seed(0)
    stages = {"flatten": nn.Flatten(), "fc1": nn.Linear(12, 4), "fc2": nn.Linear(4, 2)}
    method = build("fusion", network_of(stages), **settings)
    for parameter in method.parameters():
        nn.init.normal_(parameter)
    return method


def constant(**settings: object) -> Fusion:
    """Heads with scores (2, 0) and (0, 4); the branch says 3/4 and 1/4, whatever the image."""
    method = make(**settings)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.zero_()
        for head, scores in zip(method.heads, ([2.0, 0.0], [0.0, 4.0]), strict=True):
            head[0].bias.copy_(torch.tensor(scores))
        method.branch[1].bias.copy_(torch.tensor([math.log(3), 0.0]))
    return method


def one_image(label: int = 0, domain: int = 1) -> DomainBatch:
    return batch_of([0])._replace(labels=torch.tensor([label]), domains=torch.tensor([domain]))


@pytest.mark.parametrize(
    ("share", "domain", "expected"),
    [
        (0.25, None, [22 / 16, 20 / 16]),  # c = ¾·(¾, ¼) + (⅛, ⅛) = (11/16, 5/16)
        (0.25, 1, [2 / 8, 28 / 8]),  # a known domain takes the branch's place: c = (⅛, ⅞)
        (0, None, [1.5, 1.0]),
        (1, None, [1.0, 2.0]),  # all count the same
    ],
)
def test_logits_by_hand(share: float, domain: int | None, expected: list[float]) -> None:
    found = constant(agnostic_share=share).predict(one_image().images, domain)
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_probabilities_by_hand() -> None:
    method = constant(fuse="probabilities")
    first, second = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(4))
    mixed = 11 / 16 * first + 5 / 16 * second
    found = method.predict(one_image().images)
    torch.testing.assert_close(found, torch.tensor([[mixed, 1 - mixed]]).log())
    known = constant(agnostic_share=0, fuse="probabilities").predict(one_image().images, domain=0)
    torch.testing.assert_close(known, torch.tensor([[2.0, 0.0]]).log_softmax(1))
    losses = method.loss(one_image(label=1), STEP)
    assert losses["task"].item() == pytest.approx(-math.log(1 - mixed), rel=1e-5)


@pytest.mark.parametrize(("route", "scores"), [("predicted", [22 / 16, 20 / 16]), ("oracle", None)])
def test_route_and_composition_of_the_loss(route: str, scores: list[float] | None) -> None:
    """The branch gives the true, second domain 1/4; the oracle's c is (1/8, 7/8)."""
    losses = constant(route=route, domain_loss_weight=0.3).loss(one_image(domain=1), STEP)
    z = torch.tensor([scores or [2 / 8, 28 / 8]])
    task = functional.cross_entropy(z, torch.tensor([0])).item()
    assert losses["task"].item() == pytest.approx(task, rel=1e-5)
    assert losses["domain"].item() == pytest.approx(math.log(4), rel=1e-5)
    assert losses["loss"].item() == pytest.approx(task + 0.3 * math.log(4), rel=1e-5)
    assert losses["domain_accuracy"].item() == 0


def by_hand(method: Fusion, features: Tensor, weights: Tensor) -> Tensor:
    """(1 − α) Σ w_j f_j + (α/S) Σ f_j, as it is written in the paper."""
    scores = [head(features) for head in method.heads]
    own = sum(weights[:, j : j + 1] * f for j, f in enumerate(scores))
    alpha = method.config.agnostic_share
    return (1 - alpha) * own + alpha / 2 * sum(scores)


def test_gradients_reach_everything_through_both_terms() -> None:
    method = make(domain_loss_weight=0.7, agnostic_share=0.4)
    batch = two_classes()
    features = method.network(batch.images)
    domain_scores = method.branch(features)
    z = by_hand(method, features, domain_scores.softmax(1))
    expected = functional.cross_entropy(z, batch.labels)
    expected = expected + 0.7 * functional.cross_entropy(domain_scores, batch.domains)
    assert_loss(method.loss(batch, STEP)["loss"], expected, method)
    assert all(gradient.abs().max() > 1e-3 for gradient in gradients(expected, method))


@pytest.mark.parametrize(("route", "weight"), [("predicted", 0), ("oracle", 0), ("oracle", 1)])
@pytest.mark.parametrize("fuse", ["logits", "probabilities"])
def test_the_branch_learns_from_fused_scores_and_domains(
    fuse: str, route: str, weight: int
) -> None:
    method = make(domain_loss_weight=weight, fuse=fuse, route=route)
    (by_weight, _) = gradients(method.loss(two_classes(), STEP)["loss"], method.branch)
    assert (by_weight.abs().max().item() > 1e-3) is (route == "predicted" or weight > 0)


@pytest.mark.parametrize("route", ["predicted", "oracle"])
def test_a_share_of_zero_has_finite_gradients(route: str) -> None:
    method = make(fuse="probabilities", agnostic_share=0, route=route)
    with torch.no_grad():
        method.branch[1].bias.copy_(torch.tensor([500.0, -500.0]))
    loss = method.loss(two_classes(), STEP)["loss"]
    assert all(value.isfinite().all() for value in (loss, *gradients(loss, method)))
