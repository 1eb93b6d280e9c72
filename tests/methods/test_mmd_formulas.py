"""MMD's penalty against sums over single pairs of images, a case by hand, and autograd."""

import math
from itertools import combinations

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.mmd import GAMMAS, MMD, discrepancy

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]


def make(**settings) -> MMD:
    task = Task(("a", "b", "c"), ("k", "l", "m"))
    return MMD(tiny_network(), task, MMD.Config(name="mmd", **settings))


def similarity(some: Tensor, others: Tensor) -> Tensor:
    """Mean over all pairs, one after the other."""
    found = [(-g * (x - y).square().sum()).exp() for x in some for y in others for g in GAMMAS]
    return torch.stack(found).sum() / (len(some) * len(others))


def brute_force(features: Tensor, domains: Tensor) -> Tensor:
    parts = [features[domains == d] for d in sorted(set(domains.tolist()))]
    found = [
        similarity(a, a) + similarity(b, b) - 2 * similarity(a, b)
        for a, b in combinations(parts, 2)
    ]
    return torch.stack(found).mean()


def test_the_discrepancy_by_hand() -> None:
    """One image each at a distance of 2: Σ_γ 1 + 1 − 2 e^(−4γ)."""
    features, domains = torch.tensor([[0.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
    expected = sum(2 - 2 * math.exp(-4 * 10.0**power) for power in range(-3, 4))
    assert discrepancy(features, domains, 2).item() == pytest.approx(expected)
    assert discrepancy(features.new_ones(2, 2), domains, 2).item() == pytest.approx(0)


@pytest.mark.parametrize("domains", [DOMAINS, [0, 0, 0, 2], [1, 1]], ids=["all", "single", "one"])
def test_the_discrepancy_is_that_of_all_pairs(domains: list[int]) -> None:
    torch.manual_seed(1)
    features = torch.randn(len(domains), 4, dtype=torch.float64, requires_grad=True)
    found = discrepancy(features, torch.tensor(domains), 3)
    if len(set(domains)) == 1:
        assert found.item() == 0
        return
    expected = brute_force(features, torch.tensor(domains))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, features), torch.autograd.grad(expected, features)
    )


def test_the_loss_is_cross_entropy_plus_the_penalty_of_the_features() -> None:
    method, batch = make(penalty_weight=3.0), batch_of(DOMAINS, 3)
    penalty = brute_force(method.network.run(batch.images, until="fc2"), batch.domains)
    assert penalty > 1e-3
    task = functional.cross_entropy(method.network(batch.images), batch.labels)
    losses = method.loss(batch, START)
    torch.testing.assert_close(losses["loss"], task + 3.0 * penalty)
    expected = gradients(task + 3.0 * penalty, method)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)


def test_two_devices_compute_what_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = make(), batch_of(DOMAINS, 3)
    halves = [rows(batch, [0, 3, 4, 5]), rows(batch, [1, 2, 6, 7])]
    found = gradients_of_two(method, halves, START, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, START))


def test_one_domain_has_nothing_to_be_like() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\)"):
        MMD(tiny_network(), Task(("a", "b", "c"), ("k",)), MMD.Config(name="mmd"))
