"""CDANN: the class in the discriminator's input, classes that count alike, the reversal."""

import math
from functools import partial

import pytest
import torch
from tests.methods.batches import batch_of, build, gradients, largest
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.cdann import CDANN

pytestmark = pytest.mark.usefixtures("in_double_precision")
HALF = Progress(5, 10)
STRENGTH = 2 / (1 + math.exp(-5)) - 1
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]
make = partial(build, "cdann", discriminator_width=8)


def batch() -> DomainBatch:
    """Five images of class 0, two of class 1 and one of class 2."""
    return batch_of(DOMAINS)._replace(labels=torch.tensor([0, 0, 1, 0, 0, 0, 2, 1]))


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
    method = make()
    losses = method.loss(batch(), HALF)
    torch.testing.assert_close(losses["domain"], domain_loss(method, batch()))
    two = batch_of([0, 1, 1])._replace(labels=torch.tensor([0, 0, 2]))  # no image of class 1
    torch.testing.assert_close(method.loss(two, HALF)["domain"], domain_loss(method, two))


def test_features_unlearn_what_discriminator_and_class_vectors_learn() -> None:
    method = make(domain_weight=0.5)
    task = functional.cross_entropy(method.network(batch().images), batch().labels)
    domain = domain_loss(method, batch())
    found = method.loss(batch(), HALF)["loss"]
    for part in (method.discriminator, method.class_vectors):
        torch.testing.assert_close(gradients(found, part), gradients(domain, part))
    network = method.network
    pairs = zip(gradients(task, network), gradients(domain, network), strict=True)
    expected = [by_task - 0.5 * STRENGTH * by_domain for by_task, by_domain in pairs]
    torch.testing.assert_close(gradients(found, network), expected)
    assert largest(gradients(domain, network)) > 1e-3
