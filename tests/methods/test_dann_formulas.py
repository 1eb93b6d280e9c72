"""The mathematics of DANN and CDANN against cases worked by hand and against autograd."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import build, gradients, largest, tiny_network
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.cdann import CDANN
from unseen.methods.dann import DANN, mean_entropy
from unseen.networks.layers import reversal_strength, reverse_gradient

HALF = Progress(5, 10)
STRENGTH = 2 / (1 + math.exp(-5)) - 1  # at half of the run: 0.98661
cdann = partial(build, "cdann", discriminator_width=8)


def make(target: str | None = "t", norm: bool = False, **settings: Any) -> DANN:
    hidden = (nn.Tanh(), nn.BatchNorm1d(4)) if norm else ()
    settings = {"discriminator_width": 8} | settings
    return build("dann", tiny_network(*hidden), target=target, **settings)


def batch_of(n_source: int = 4, n_target: int = 4) -> DomainBatch:
    domains = (torch.arange(n_source) * 2 // n_source).tolist()
    return batches.batch_of(domains, n_target=n_target)


def test_reversal_keeps_numbers_and_turns_gradients_round() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    same = reverse_gradient(x, 0.25)
    assert torch.equal(same, x)
    (same * torch.tensor([4.0, 8.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("ratio", "steepness", "expected"),
    [
        (0.0, 10.0, 0.0),
        (0.5, 10.0, 0.986614),  # 2 / (1 + e^−5) − 1, e^−5 = 0.0067379
        (1.0, 10.0, 0.999909),  # e^−10 = 0.0000454
        (0.5, math.log(9), 0.5),  # e^(−ln 9 / 2) = 1/3, 2 / (4/3) − 1
    ],
)
def test_the_strength_of_the_reversal_by_hand(
    ratio: float, steepness: float, expected: float
) -> None:
    assert reversal_strength(ratio, steepness) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("target", [None, "t"])
@pytest.mark.parametrize("condition", ["none", "class"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_who_gets_which_gradient(target: str | None, condition: str, weight: float) -> None:
    """Features ∂task − λ ∂domain, label head ∂task, discriminator ∂domain as it is."""
    method = make(target, condition=condition, domain_weight=weight)
    batch = batch_of()
    images = torch.cat([batch.images, batch.target]) if target else batch.images
    domains = torch.tensor([0] * 4 + [1] * 4) if target else batch.domains
    network = method.network
    features = network.run(images, until="fc2")
    scores = network.run(features, since="fc2")
    task_loss = functional.cross_entropy(scores[:4], batch.labels)
    seen = features
    if condition == "class":
        seen = torch.einsum("nf,nc->nfc", features, scores.softmax(1).detach()).flatten(1)
    domain_loss = functional.cross_entropy(method.discriminator(seen), domains)

    losses = method.loss(batch, HALF)
    torch.testing.assert_close(losses["task"], task_loss)
    torch.testing.assert_close(losses["domain"], domain_loss)
    body, head = network.stage("fc1"), network.stage("fc2")
    pairs = zip(gradients(task_loss, body), gradients(domain_loss, body), strict=True)
    reversed_ = [by_task - weight * STRENGTH * by_domain for by_task, by_domain in pairs]
    torch.testing.assert_close(gradients(losses["loss"], body), reversed_)
    assert largest(gradients(domain_loss, body)) > 1e-3
    for module, loss in ((head, task_loss), (method.discriminator, domain_loss)):
        torch.testing.assert_close(gradients(losses["loss"], module), gradients(loss, module))
    at_first = gradients(method.loss(batch, Progress(0, 10))["loss"], body)
    torch.testing.assert_close(at_first, gradients(task_loss, body))  # nothing is reversed yet


def test_source_and_target_pass_the_network_together() -> None:
    """One call for each stage, and batch-norm statistics of all images at once."""
    method = make(norm=True).train()
    batch = batch_of(4, 6)
    sizes = []
    method.network.stage("fc1").register_forward_hook(
        lambda _, inputs, __: sizes.append(len(inputs[0]))
    )
    method.loss(batch, HALF)
    assert sizes == [10]
    assert batch.target is not None
    norm = method.network.stage("fc1")[2]
    hidden = method.network.stage("fc1")[:2](torch.cat([batch.images, batch.target]).flatten(1))
    torch.testing.assert_close(norm.running_mean, 0.1 * hidden.mean(0))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * hidden.var(0))


def test_both_sides_count_equally_whatever_their_numbers() -> None:
    method = make()
    batch = batch_of(2, 6)
    assert batch.target is not None
    guesses = [
        method.discriminator(method.network.run(images, until="fc2"))
        for images in (batch.images, batch.target)
    ]
    answers = [torch.full((len(g),), side) for side, g in enumerate(guesses)]
    parts = [functional.cross_entropy(g, a) for g, a in zip(guesses, answers, strict=True)]
    right = [(g.argmax(1) == a).float().mean() for g, a in zip(guesses, answers, strict=True)]
    losses = method.loss(batch, HALF)
    torch.testing.assert_close(losses["domain"], (parts[0] + parts[1]) / 2)
    torch.testing.assert_close(losses["domain_accuracy"], (right[0] + right[1]) / 2)
    pooled = functional.cross_entropy(torch.cat(guesses), torch.cat(answers))
    assert abs(losses["domain"] - pooled) > 1e-3


def test_entropy_of_target_predictions() -> None:
    """Of two even chances ln 2, of certainty 0; the mean over images is added, with its weight."""
    scores = torch.tensor([[0.0, 0.0, -1e4], [1e4, 0.0, 0.0]])
    assert mean_entropy(scores).item() == pytest.approx(math.log(2) / 2)
    with_it, without = (make(target_entropy_weight=w).loss(batch_of(), HALF) for w in (0.2, 0.0))
    target = batch_of().target
    assert target is not None
    expected = mean_entropy(make().network(target))
    torch.testing.assert_close(with_it["target_entropy"], expected)
    torch.testing.assert_close(with_it["loss"] - without["loss"], 0.2 * expected)
    assert "target_entropy" not in without


def test_the_discriminator_is_built_as_told() -> None:
    def shapes(method: DANN) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in method.discriminator.parameters() if p.ndim == 2]

    assert shapes(make()) == [(8, 4), (2, 8)]
    assert shapes(make(discriminator_depth=2)) == [(8, 4), (8, 8), (2, 8)]
    assert shapes(make(condition="class")) == [(8, 12), (2, 8)]
    assert shapes(make(site="fc1")) == [(8, 12), (2, 8)]
    assert shapes(make(target=None, domains=3, discriminator_depth=0)) == [(3, 4)]
    dropouts = [m.p for m in make(discriminator_dropout=0.4).modules() if isinstance(m, nn.Dropout)]
    assert dropouts == [0.4]
    assert make(discriminator_lr=0.03).parameter_groups()[0].get("lr") == 0.03


def test_an_earlier_site_is_where_the_reversal_acts() -> None:
    """At the input of fc1 nothing learns before it: fc1 sees the task alone."""
    method = make(site="fc1")
    plain = functional.cross_entropy(method.network(batch_of().images), batch_of().labels)
    found = gradients(method.loss(batch_of(), HALF)["loss"], method.network)
    torch.testing.assert_close(found, gradients(plain, method.network))


def test_a_frozen_network_up_to_the_site_is_remarked_on() -> None:
    assert make().remarks == ()
    network = tiny_network()
    network.freeze("fc2")
    (remark,) = build("dann", network).remarks
    assert "nothing before 'fc2' learns" in remark
    with pytest.raises(SettingsError, match="lies in the frozen part"):
        build("dann", network, site="fc1")
    with pytest.raises(SettingsError, match=r"target_entropy_weight=0.5 needs target images"):
        make(target=None, target_entropy_weight=0.5)


def uneven_classes() -> DomainBatch:
    """Five images of class 0, two of class 1 and one of class 2."""
    return batches.batch_of([0, 0, 0, 0, 1, 1, 1, 1])._replace(
        labels=torch.tensor([0, 0, 1, 0, 0, 0, 2, 1])
    )


def domain_loss(method: CDANN, given: DomainBatch) -> Tensor:
    """Without a reversal: class by class, then the mean over classes."""
    features = method.network.run(given.images, until="fc2")
    parts = []
    for label in sorted(set(given.labels.tolist())):
        own = given.labels == label
        seen = features[own] + method.class_vectors.weight[label]
        parts.append(functional.cross_entropy(method.discriminator(seen), given.domains[own]))
    return torch.stack(parts).mean()


def test_every_class_counts_the_same() -> None:
    method = cdann()
    losses = method.loss(uneven_classes(), HALF)
    torch.testing.assert_close(losses["domain"], domain_loss(method, uneven_classes()))
    two = batches.batch_of([0, 1, 1])._replace(
        labels=torch.tensor([0, 0, 2])
    )  # no image of class 1
    torch.testing.assert_close(method.loss(two, HALF)["domain"], domain_loss(method, two))


def test_features_unlearn_what_discriminator_and_class_vectors_learn() -> None:
    method = cdann(domain_weight=0.5)
    task = functional.cross_entropy(
        method.network(uneven_classes().images), uneven_classes().labels
    )
    domain = domain_loss(method, uneven_classes())
    found = method.loss(uneven_classes(), HALF)["loss"]
    for part in (method.discriminator, method.class_vectors):
        torch.testing.assert_close(gradients(found, part), gradients(domain, part))
    network = method.network
    pairs = zip(gradients(task, network), gradients(domain, network), strict=True)
    expected = [by_task - 0.5 * STRENGTH * by_domain for by_task, by_domain in pairs]
    torch.testing.assert_close(gradients(found, network), expected)
    assert largest(gradients(domain, network)) > 1e-3
