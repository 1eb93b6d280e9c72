"""CORAL's penalty against covariances that are built, a case by hand, and autograd."""

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
from unseen.methods.coral import CORAL, misalignment

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]


def make(**settings) -> CORAL:
    task = Task(("a", "b", "c"), ("k", "l", "m"))
    return CORAL(tiny_network(), task, CORAL.Config(name="coral", **settings))


def brute_force(features: Tensor, domains: Tensor) -> Tensor:
    """With covariances as matrices; one image alone has the covariance zero."""
    parts = [features[domains == d] for d in sorted(set(domains.tolist()))]
    found = []
    for one, other in combinations(parts, 2):
        covariances = [
            torch.cov(part.T) if len(part) > 1 else torch.zeros(4, 4, dtype=torch.float64)
            for part in (one, other)
        ]
        means = (one.mean(dim=0) - other.mean(dim=0)).square().mean()
        found.append(means + (covariances[0] - covariances[1]).square().mean())
    return torch.stack(found).mean()


def test_the_penalty_by_hand() -> None:
    """Rows (±1, 0) and (1, ±1): means (0, 0) and (1, 0), covariances diag(2, 0) and diag(0, 2)."""
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    found = misalignment(features, torch.tensor([0, 0, 1, 1]), 2)
    assert found.item() == pytest.approx(1 / 2 + 8 / 4)


@pytest.mark.parametrize("domains", [DOMAINS, [0, 0, 0, 2], [1, 1]], ids=["all", "single", "one"])
def test_the_penalty_is_that_of_built_covariances(domains: list[int]) -> None:
    torch.manual_seed(1)
    features = torch.randn(len(domains), 4, dtype=torch.float64, requires_grad=True)
    found = misalignment(features, torch.tensor(domains), 3)
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
    features = method.network.run(batch.images, until="fc2")
    penalty = brute_force(features, batch.domains)
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


def test_what_cannot_be_aligned() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\)"):
        CORAL(tiny_network(), Task(("a", "b", "c"), ("k",)), CORAL.Config(name="coral"))
    network = tiny_network()
    network.freeze("fc2")
    (remark,) = CORAL(network, make().task, CORAL.Config(name="coral")).remarks
    assert "nothing before 'fc2' learns" in remark
    assert make().remarks == ()
