"""Mixup between domains: who is mixed with whom, in which share, and what is minimised."""

import numpy as np
import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build
from torch.nn import functional

from unseen.methods.base import Progress
from unseen.methods.mixup import beta_quantile, partners

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def places(domains: list[int], step: int = 0) -> list[int]:
    """The place of each image's partner."""
    batch = batch_of(domains, 3, step)
    images, labels = partners(batch, batch.images)
    found = [int((batch.images == image).all(dim=(1, 2, 3)).nonzero()) for image in images]
    assert labels.tolist() == [int(batch.labels[place]) for place in found]
    return found


def test_partners_are_of_the_next_domain_in_a_circle() -> None:
    circles = set()
    for step in range(20):
        found = places(DOMAINS, step)
        assert sorted(found) == list(range(9))  # everybody is somebody's partner
        leads_to = {
            d: {DOMAINS[found[place]] for place in range(9) if DOMAINS[place] == d}
            for d in range(3)
        }
        circles.add(tuple(next(iter(leads_to[d])) for d in range(3)))
        assert all(len(found) == 1 for found in leads_to.values())
    assert circles == {(1, 2, 0), (2, 0, 1)}
    assert len({tuple(places(DOMAINS, step)) for step in range(20)}) > 10


def test_batches_that_are_not_balanced() -> None:
    domains = [0, 0, 0, 0, 2]  # one domain is missing, one has a single image
    assert places(domains)[:4] == [4, 4, 4, 4]
    assert places([1, 1]) == [0, 1]  # nobody else is there


def test_the_loss_is_that_of_mixed_images_and_both_labels() -> None:
    method, batch = build("mixup", domains=3, alpha=1.0), batch_of(DOMAINS, 3)
    others = places(DOMAINS)
    shares = method._shares(batch)
    assert len(set(shares.tolist())) == 3
    assert all(0.02 < share < 0.98 for share in shares.tolist())  # or nothing is tested
    total = torch.zeros((), dtype=torch.float64)
    for place, other in enumerate(others):
        share = shares[place]
        mixed = share * batch.images[place].double() + (1 - share) * batch.images[other].double()
        scores = method.network(mixed[None])
        own, its = batch.labels[place : place + 1], batch.labels[other : other + 1]
        total = total + share * functional.cross_entropy(scores, own) / 9
        total = total + (1 - share) * functional.cross_entropy(scores, its) / 9
    losses = method.loss(batch._replace(images=batch.images.double()), START)
    assert_loss(losses["loss"], total, method)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_shares_are_of_the_beta_distribution(alpha: float) -> None:
    """Mean 1/2, variance 1 / (4 (2α + 1)); α = 1 leaves uniform numbers as they are."""
    chances = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    found = beta_quantile(chances, alpha)
    assert found.mean().item() == pytest.approx(0.5)
    assert found.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=2e-3)
    if alpha == 1.0:
        np.testing.assert_allclose(found.numpy(), chances.numpy())
