"""Methods that add a penalty to cross-entropy, each against brute force in value and gradient."""

import math
from collections.abc import Callable
from itertools import combinations, permutations
from typing import Any, NamedTuple

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.mmd import GAMMAS

pytestmark = pytest.mark.usefixtures("in_double_precision")
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]
LATE = Progress(5, 10)


def make(name: str, **settings: Any) -> Any:
    method = build(name, domains=3, **settings)
    with torch.no_grad():
        method.network.stage("fc2").weight.mul_(4)  # scores that are large enough to matter
    return method


def by_domain(values: Tensor, domains: Tensor) -> list[Tensor]:
    return [values[domains == domain] for domain in domains.unique()]


def covariance(rows: Tensor) -> Tensor:
    """One image alone has the covariance zero."""
    return torch.cov(rows.T) if len(rows) > 1 else rows.new_zeros(rows.shape[1], rows.shape[1])


def coral(rows: Tensor, domains: Tensor) -> Tensor:
    """With covariances that are built."""
    found = [
        (a.mean(dim=0) - b.mean(dim=0)).square().mean()
        + (covariance(a) - covariance(b)).square().mean()
        for a, b in combinations(by_domain(rows, domains), 2)
    ]
    return torch.stack(found).mean()


def similarity(some: Tensor, others: Tensor) -> Tensor:
    """Mean over all pairs, one after the other."""
    found = [(-g * (x - y).square().sum()).exp() for x in some for y in others for g in GAMMAS]
    return torch.stack(found).sum() / (len(some) * len(others))


def mmd(rows: Tensor, domains: Tensor) -> Tensor:
    found = [
        similarity(a, a) + similarity(b, b) - 2 * similarity(a, b)
        for a, b in combinations(by_domain(rows, domains), 2)
    ]
    return torch.stack(found).mean()


def iberm(rows: Tensor, domains: Tensor) -> Tensor:
    """DomainBed's sum over domains; one image alone has the variance zero."""
    own = [each.var(dim=0).mean() for each in by_domain(rows, domains) if len(each) > 1]
    return torch.stack(own).sum() / len(domains.unique())


def risks(method: Any, batch: DomainBatch) -> Tensor:
    each = functional.cross_entropy(method.network(batch.images), batch.labels, reduction="none")
    return torch.stack([part.mean() for part in by_domain(each, batch.domains)])


def of_features(distance: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, DomainBatch], Any]:
    def parts(method: Any, batch: DomainBatch) -> tuple[Tensor, Tensor]:
        task = functional.cross_entropy(method.network(batch.images), batch.labels)
        return task, distance(method.network.run(batch.images, until="fc2"), batch.domains)

    return parts


def irm(method: Any, batch: DomainBatch) -> tuple[Tensor, Tensor]:
    """The mean product of two images' derivatives, by autograd; mean over domains."""
    slopes = []
    for score, label in zip(method.network(batch.images), batch.labels, strict=True):
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        loss = functional.cross_entropy((scale * score)[None], label[None])
        slopes += torch.autograd.grad(loss, scale, create_graph=True)
    parts = []
    for own in by_domain(torch.stack(slopes), batch.domains):
        pairs = [a * b for a, b in permutations(own, 2)]
        parts.append(torch.stack(pairs).mean() if pairs else 0 * own.sum())
    return risks(method, batch).mean(), torch.stack(parts).mean()


def vrex(method: Any, batch: DomainBatch) -> tuple[Tensor, Tensor]:
    found = risks(method, batch)
    return found.mean(), ((found - found.mean()) ** 2).mean()


def variances(method: Any, batch: DomainBatch) -> Tensor:
    """Of the classifier's gradients, by one backward an image; differentiable."""
    each = []
    head = list(method.network.stage("fc2").parameters())
    for image, label in zip(batch.images, batch.labels, strict=True):
        loss = functional.cross_entropy(method.network(image[None]), label[None])
        weight, bias = torch.autograd.grad(loss, head, create_graph=True)
        each.append(torch.cat([weight, bias[:, None]], dim=1))
    parts = by_domain(torch.stack(each), batch.domains)
    return torch.stack([part.var(dim=0, correction=0) for part in parts])


def spread(v: Tensor) -> Tensor:
    return (v - v.mean(dim=0)).square().mean()


def fishr(method: Any, batch: DomainBatch) -> tuple[Tensor, Tensor]:
    task = functional.cross_entropy(method.network(batch.images), batch.labels)
    return task, spread(variances(method, batch))


def sd(method: Any, batch: DomainBatch) -> tuple[Tensor, Tensor]:
    scores = method.network(batch.images)
    return functional.cross_entropy(scores, batch.labels), (scores**2).sum() / scores.numel()


class Case(NamedTuple):
    """How a method's task and penalty are computed by brute force, and what to test them with."""

    parts: Callable[[Any, DomainBatch], tuple[Tensor, Tensor]]
    unbalanced: list[int] | None
    """Domains of a batch that lacks one of them."""
    before: float | None = None
    """The weight of the penalty in the first part of the run, where it has another one there."""
    settings: dict[str, float] = {}  # noqa: RUF012


CASES = {
    "coral": Case(of_features(coral), [0, 0, 0, 2]),
    "mmd": Case(of_features(mmd), [0, 0, 0, 2]),
    "iberm": Case(of_features(iberm), [0, 0, 0, 2], before=0.0),
    "irm": Case(irm, [0, 0, 0, 0, 2], before=1.0),
    "vrex": Case(vrex, [0, 0, 0, 2, 2, 2], before=1.0),
    "fishr": Case(fishr, None, before=0.0, settings={"memory": 0.0}),
    "sd": Case(sd, [0, 0, 2]),
}
BATCHES = [(n, d) for n, case in CASES.items() for d in (DOMAINS, case.unbalanced) if d]


@pytest.mark.parametrize(("name", "domains"), BATCHES)
def test_the_loss_is_that_of_the_formula(name: str, domains: list[int]) -> None:
    method = make(name, penalty_weight=7.0, **CASES[name].settings)
    batch = batch_of(domains, 3, dtype=torch.float64)
    task, penalty = CASES[name].parts(method, batch)
    assert penalty.abs() > 1e-5  # or nothing is tested
    losses = method.loss(batch, LATE)
    torch.testing.assert_close(losses["variance" if name == "vrex" else "penalty"], penalty)
    assert_loss(losses["loss"], task + 7.0 * penalty, method)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.before is not None])
def test_the_penalty_has_its_weight_after_a_part_of_the_run(name: str) -> None:
    case = CASES[name]
    for step, weight in ((0, case.before), (2, case.before), (3, 30.0), (9, 30.0)):
        method = make(name, penalty_weight=30.0, penalty_anneal=0.3)
        losses = method.loss(batch_of(DOMAINS, 3), Progress(step, 10))
        penalty = losses["variance" if name == "vrex" else "penalty"]
        torch.testing.assert_close(losses["loss"], losses["task"] + weight * penalty)


def test_mmd_by_hand() -> None:
    """One image each at a distance of 2: Σ_γ 1 + 1 − 2 e^(−4γ)."""
    features, distance = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), make("mmd").penalty
    expected = sum(2 - 2 * math.exp(-4 * 10.0**power) for power in range(-3, 4))
    assert distance(features, torch.eye(2)).item() == pytest.approx(expected)
    assert distance(features.new_ones(2, 2), torch.eye(2)).item() == pytest.approx(0)


@pytest.mark.parametrize("name", ["coral", "mmd"])
def test_one_domain_alone_is_at_no_distance(name: str) -> None:
    assert make(name).loss(batch_of([1, 1], 3), LATE)["penalty"] == 0


def test_fishrs_variances_are_a_moving_average_by_domain() -> None:
    """After two steps γ (1 − γ) v₁ + (1 − γ) v₂, which the penalty divides by 1 − γ; v₁ is a
    constant in it. A domain without images keeps its average."""
    method = make("fishr", memory=0.75, penalty_weight=50.0)
    first, second = (batch_of(DOMAINS, 3, step) for step in (0, 1))
    v1, v2 = variances(method, first).detach(), variances(method, second)
    method.loss(first, LATE)
    torch.testing.assert_close(method.variances, 0.25 * v1)
    losses = method.loss(second, LATE)
    before = method.variances.clone()
    torch.testing.assert_close(before, 0.75 * 0.25 * v1 + 0.25 * v2.detach())
    task = functional.cross_entropy(method.network(second.images), second.labels)
    assert_loss(losses["loss"], task + 50.0 * spread(0.75 * v1 + v2), method)
    method.loss(batch_of([0, 0, 0, 2, 2], 3, step=1), LATE)
    same = [torch.equal(a, b) for a, b in zip(before, method.variances, strict=True)]
    assert same == [False, True, False]


def test_fishr_needs_a_linear_classifier() -> None:
    network = network_of({"flatten": nn.Flatten(), "head": nn.Sequential(nn.Linear(12, 3))})
    with pytest.raises(SettingsError, match=r"one linear classifier, found Sequential as .*'head'"):
        build("fishr", network)
