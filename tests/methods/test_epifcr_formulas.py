"""Epi-FCR: each term's value, and that it trains exactly the part that it should."""

import math
from collections import Counter

import pytest
import torch
from tests.methods.batches import batch_of, build, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.data.randomness import step_key
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.epifcr import EpiFCR, draw_pair
from unseen.networks.stages import Network

WARM, EPISODES = Progress(0, 60), Progress(10, 60)


def tiny_network() -> Network:
    stages = {
        "conv": nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Tanh()),
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(nn.Linear(16, 5), nn.BatchNorm1d(5), nn.Tanh()),
        "fc2": nn.Linear(5, 3),
    }
    return network_of(stages)


def make(network: Network | None = None, **settings: object) -> EpiFCR:
    """All networks differ from each other, as after a warm-up."""
    torch.manual_seed(0)
    method = build("epifcr", network or tiny_network(), domains=3, **settings)
    for parameter in method.parameters():
        nn.init.normal_(parameter)
    return method


BALANCED = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def parts(method: EpiFCR) -> dict[str, list[nn.Parameter]]:
    """θ and ψ of the aggregation network and of each domain, and ψ_r."""
    names = method.network.names
    cut = names.index(method.split)
    theta = [p for name in names[:cut] for p in method.network.stage(name).parameters()]
    psi = [p for name in names[cut:] for p in method.network.stage(name).parameters()]
    found = {"θ": theta, "ψ": psi, "ψ_r": list(method.random_classifier.parameters())}
    for j, name in enumerate(method.task.domains):
        found[f"θ_{name}"] = list(method.domain_features[j].parameters())
        found[f"ψ_{name}"] = list(method.domain_classifiers[j].parameters())
    return found


def reached(method: EpiFCR, loss: Tensor) -> set[str]:
    """The parts that a loss has a gradient by."""
    method.zero_grad()
    loss.backward()
    return {
        name
        for name, params in parts(method).items()
        if any(p.grad is not None and p.grad.abs().max() > 1e-7 for p in params)
    }


def terms(method: EpiFCR, batch: DomainBatch) -> dict[str, Tensor]:
    """Every term of the paper, divided by the number of domains; batch norm by its statistics."""
    method.eval()
    i, j = draw_pair(batch.step_key, 3)
    x, y = batch.images, batch.labels
    of_i = batch.domains == i
    split = method.split

    def theta(images: Tensor) -> Tensor:
        return method.network.run(images, until=split)

    def psi(features: Tensor) -> Tensor:
        return method.network.run(features, since=split)

    cross_entropy = functional.cross_entropy
    own = [
        cross_entropy(method.domain_classifiers[d](method.domain_features[d](x[rows])), y[rows])
        for d in range(3)
        for rows in [batch.domains == d]
    ]
    return {
        "task": cross_entropy(psi(theta(x)), y),
        "domain_networks": torch.stack(own).mean(),
        "epi_f": cross_entropy(method.domain_classifiers[j](theta(x[of_i])), y[of_i]) / 3,
        "epi_c": cross_entropy(psi(method.domain_features[j](x[of_i])), y[of_i]) / 3,
        "epi_r": cross_entropy(method.random_classifier(theta(x)), y),
    }


@pytest.mark.parametrize("split", [None, "fc1"])
@pytest.mark.parametrize("step", range(4))
def test_all_terms_by_hand(step: int, split: str | None) -> None:
    method = make(split=split, feature_weight=0.7, classifier_weight=0.4, random_weight=0.3)
    batch = batch_of(BALANCED, 3, step)
    expected = terms(method, batch)
    losses = method.loss(batch, EPISODES)
    for name, value in expected.items():
        torch.testing.assert_close(losses[name], value.detach(), msg=name)
    weights = {"epi_f": 0.7, "epi_c": 0.4, "epi_r": 0.3}
    total = sum(weights.get(name, 1.0) * value for name, value in expected.items())
    torch.testing.assert_close(losses["loss"], total)


@pytest.mark.parametrize(
    ("term", "trained"), [("epi_f", "θ"), ("epi_c", "ψ"), ("epi_r", "θ"), (None, "θψ")]
)
@pytest.mark.parametrize("split", [None, "fc1"])
def test_each_term_trains_its_part_and_no_other(
    term: str | None, trained: str, split: str | None
) -> None:
    """An episode's gradient is the difference between the steps with and without it. It is that of
    the formula by the trained part, and zero by all others."""
    weights = {"epi_f": "feature_weight", "epi_c": "classifier_weight", "epi_r": "random_weight"}
    method = make(split=split, **{name: float(key == term) for key, name in weights.items()})
    batch = batch_of(BALANCED, 3)
    expected = terms(method, batch)

    def gradients(progress: Progress) -> dict[str, list[Tensor | None]]:
        method.zero_grad()
        method.loss(batch, progress)["loss"].backward()
        return {k: [None if p.grad is None else p.grad.clone() for p in ps] for k, ps in all_parts}

    all_parts = parts(method).items()
    warm, episode = gradients(WARM), gradients(EPISODES)
    if term is None:
        assert reached(method, method.loss(batch, WARM)["loss"]) == set(parts(method)) - {"ψ_r"}
    for name, parameters in all_parts:
        if name == trained:
            wanted = torch.autograd.grad(expected[term], parameters, retain_graph=True)
            assert max(g.abs().max() for g in wanted) > 1e-4
        elif name == "ψ_r":
            assert episode[name] == [None] * len(parameters)
            continue
        else:
            wanted = [torch.zeros_like(p) for p in parameters]
        for before, after, gradient in zip(warm[name], episode[name], wanted, strict=True):
            torch.testing.assert_close(after - before, gradient, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize(("share", "first"), [(1 / 6, 10), (0.0, 0), (1.0, 60)])
def test_episodes_begin_after_the_warm_up(share: float, first: int) -> None:
    method, batch = make(warm_up=share), batch_of(BALANCED, 3)
    for step in {0, first - 1, first, 59} & set(range(60)):
        losses = method.loss(batch, Progress(step, 60))
        assert {losses[f"epi_{kind}"].item() > 0 for kind in "fcr"} == {step >= first}


def test_all_ordered_pairs_of_different_domains_are_equally_likely() -> None:
    drawn = Counter(draw_pair(step_key(0, step), 3) for step in range(1200))
    assert set(drawn) == {(i, j) for i in range(3) for j in range(3) if i != j}
    assert max(drawn.values()) < 1.3 * min(drawn.values())
    assert {draw_pair(step_key(0, step), 2) for step in range(30)} == {(0, 1), (1, 0)}


def test_the_random_classifier_is_fixed_and_not_near_zero() -> None:
    """A new classifier starts at weights of 0.01; the random one at torch's 1/√width and less."""
    network = tiny_network()
    nn.init.normal_(network.stage("fc2").weight, std=0.01)
    method = build("epifcr", network, domains=3)
    weight = method.random_classifier[0].weight
    assert not weight.requires_grad
    assert 0.1 < weight.std() < weight.abs().max() <= 1 / math.sqrt(5)
    assert "random_classifier.fc2.weight" in method.state_dict()
    assert torch.equal(method.domain_classifiers[0][0].weight, network.stage("fc2").weight)


@pytest.mark.parametrize(
    ("until", "split", "message"),
    [
        ("fc2", None, "nothing before stage 'fc2' learns"),
        ("fc1", "conv", "stage 'conv' lies in the frozen part"),
        (None, "conv", "nothing before stage 'conv' learns"),
        (None, "fc3", "unknown stage 'fc3'"),
    ],
)
def test_splits_that_leave_no_features(until: str | None, split: str | None, message: str) -> None:
    network = tiny_network()
    if until is not None:
        network.freeze(until)
    with pytest.raises(SettingsError, match=message):
        make(network, split=split)
