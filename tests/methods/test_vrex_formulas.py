"""V-REx against risks worked by hand and by brute force."""

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch.nn import functional

from unseen.data.batch import Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.shared import group_means, mean_of_present
from unseen.methods.vrex import VREx

pytestmark = pytest.mark.usefixtures("in_double_precision")
EARLY, LATE = Progress(0, 10), Progress(5, 10)
DOMAINS = [0, 0, 0, 1, 1, 2, 2, 2]


def make(**settings) -> VREx:
    task = Task(("a", "b", "c"), ("k", "l", "m"))
    return VREx(tiny_network(), task, VREx.Config(name="vrex", **settings))


def risks(method: VREx, domains: list[int]) -> torch.Tensor:
    batch = batch_of(domains, 3)
    parts = [batch.domains == d for d in sorted(set(domains))]
    scores = method.network(batch.images.double())
    return torch.stack([functional.cross_entropy(scores[p], batch.labels[p]) for p in parts])


def test_means_by_hand() -> None:
    values, domains = torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2])
    means, counts = group_means(values, domains, 3)
    assert means.tolist() == [2.0, 0.0, 5.0]
    assert counts.tolist() == [2.0, 0.0, 1.0]
    assert mean_of_present(means, counts).item() == 3.5  # the domain in the middle has no image


@pytest.mark.parametrize("domains", [DOMAINS, [0, 0, 0, 2, 2, 2]], ids=["all", "one is missing"])
def test_the_loss_is_the_mean_risk_plus_beta_times_the_variance(domains: list[int]) -> None:
    method = make(penalty_weight=7.0)
    found = risks(method, domains)
    mean = found.sum() / len(found)
    variance = ((found - mean) ** 2).sum() / len(found)
    assert variance > 1e-3
    losses = method.loss(batch_of(domains, 3), LATE)
    torch.testing.assert_close(losses["loss"], mean + 7.0 * variance)
    torch.testing.assert_close(losses["variance"], variance)
    expected = gradients(mean + 7.0 * variance, method)
    torch.testing.assert_close(gradients(losses["loss"], method), expected)


def test_the_penalty_has_weight_one_at_first() -> None:
    method = make(penalty_weight=7.0, penalty_anneal=0.3)
    batch = batch_of(DOMAINS, 3)
    for step, weight in ((0, 1.0), (2, 1.0), (3, 7.0), (9, 7.0)):
        losses = method.loss(batch, Progress(step, 10))
        torch.testing.assert_close(losses["loss"], losses["task"] + weight * losses["variance"])


@pytest.mark.parametrize("first", [[0, 3, 4, 5], [0, 1, 2, 3]])
def test_two_devices_compute_what_one_does(
    first: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make()
    batch = batch_of(DOMAINS, 3)
    halves = [rows(batch, first), rows(batch, [p for p in range(8) if p not in first])]
    found = gradients_of_two(method, halves, LATE, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, LATE))


def test_one_domain_has_no_variance() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\)"):
        VREx(tiny_network(), Task(("a", "b", "c"), ("k",)), VREx.Config(name="vrex"))
