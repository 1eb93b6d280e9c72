"""The mathematics of DANN and CDANN against cases worked by hand and against autograd."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import assert_gradients, build, gradients, tiny_network
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


def test_the_strength_of_the_reversal_by_hand() -> None:
    """At half of the run 2 / (1 + e^−5) − 1; with e^(−ln 9 / 2) = 1/3 it is 2 / (4/3) − 1."""
    given = [(0.0, 10.0), (0.5, 10.0), (1.0, 10.0), (0.5, math.log(9))]
    found = [reversal_strength(*each) for each in given]
    assert found == pytest.approx([0, 0.986614, 0.999909, 0.5], abs=1e-6)


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
    assert_gradients(losses["loss"], task_loss, -weight * STRENGTH, domain_loss, body)
    for module, loss in ((head, task_loss), (method.discriminator, domain_loss)):
        torch.testing.assert_close(gradients(losses["loss"], module), gradients(loss, module))
    at_first = gradients(method.loss(batch, Progress(0, 10))["loss"], body)
    torch.testing.assert_close(at_first, gradients(task_loss, body))  # nothing is reversed yet


def test_source_and_target_pass_the_network_together() -> None:
    """Batch-norm statistics are those of all images at once."""
    method, batch = make(norm=True), batch_of(4, 6)
    method.loss(batch, HALF)
    linear, tanh, norm = method.network.stage("fc1")
    hidden = tanh(linear(torch.cat([batch.images, batch.target]).flatten(1)))
    torch.testing.assert_close(norm.running_mean, 0.1 * hidden.mean(0))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * hidden.var(0))


def test_both_sides_count_equally_whatever_their_numbers() -> None:
    method, batch = make(), batch_of(2, 6)
    losses, parts, right = method.loss(batch, HALF), [], []
    for side, images in enumerate((batch.images, batch.target)):
        guesses = method.discriminator(method.network.run(images, until="fc2"))
        answers = torch.full((len(guesses),), side)
        parts.append(functional.cross_entropy(guesses, answers))
        right.append((guesses.argmax(1) == answers).float().mean())
    torch.testing.assert_close(losses["domain"], (parts[0] + parts[1]) / 2)
    torch.testing.assert_close(losses["domain_accuracy"], (right[0] + right[1]) / 2)
    assert abs(losses["domain"] - (2 * parts[0] + 6 * parts[1]) / 8) > 1e-3


def test_entropy_of_target_predictions() -> None:
    """Of two even chances ln 2, of certainty 0; the mean over images is added, with its weight."""
    scores = torch.tensor([[0.0, 0.0, -1e4], [1e4, 0.0, 0.0]])
    assert mean_entropy(scores).item() == pytest.approx(math.log(2) / 2)
    with_it, without = (make(target_entropy_weight=w).loss(batch_of(), HALF) for w in (0.2, 0.0))
    expected = mean_entropy(make().network(batch_of().target))
    torch.testing.assert_close(with_it["loss"] - without["loss"], 0.2 * expected)
    assert "target_entropy" not in without


def test_the_discriminator_is_built_as_told() -> None:
    method = make(discriminator_depth=2, discriminator_dropout=0.4, discriminator_lr=0.03)
    shapes = [p.shape for p in method.discriminator.parameters() if p.ndim == 2]
    assert shapes == [(8, 4), (8, 8), (2, 8)]
    assert {m.p for m in method.modules() if isinstance(m, nn.Dropout)} == {0.4}
    assert method.parameter_groups()[0].get("lr") == 0.03


def test_an_earlier_site_is_where_the_reversal_acts() -> None:
    """At the input of fc1 nothing learns before it: fc1 sees the task alone."""
    method = make(site="fc1")
    plain = functional.cross_entropy(method.network(batch_of().images), batch_of().labels)
    found = gradients(method.loss(batch_of(), HALF)["loss"], method.network)
    torch.testing.assert_close(found, gradients(plain, method.network))


def test_what_a_discriminator_cannot_change_or_see_is_said() -> None:
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
    two = batches.batch_of([0, 1, 1])._replace(labels=torch.tensor([0, 0, 2]))  # none of class 1
    for batch in (uneven_classes(), two):
        method = cdann()
        found = method.loss(batch, HALF)["domain"]
        torch.testing.assert_close(found, domain_loss(method, batch))


def test_features_unlearn_what_discriminator_and_class_vectors_learn() -> None:
    method, batch = cdann(domain_weight=0.5), uneven_classes()
    network = method.network
    task = functional.cross_entropy(network(batch.images), batch.labels)
    domain = domain_loss(method, batch)
    found = method.loss(batch, HALF)["loss"]
    for part in (method.discriminator, method.class_vectors):
        torch.testing.assert_close(gradients(found, part), gradients(domain, part))
    assert_gradients(found, task, -0.5 * STRENGTH, domain, network)
