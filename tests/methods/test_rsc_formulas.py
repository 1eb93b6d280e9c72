"""RSC: which features are muted, in which images, and what is then minimised."""

from functools import partial

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.rsc import RSC, smallest_among_largest

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)
DOMAINS = [0, 0, 0, 0, 1, 1, 1, 1]
make = partial(build, "rsc")


def test_the_largest_of_each_row() -> None:
    values = torch.tensor([[1.0, -5.0, 3.0, 2.0], [0.0, 9.0, -1.0, 8.0]])
    assert smallest_among_largest(values, 0.5).tolist() == [2, 8]
    assert smallest_among_largest(values, 0.1).isinf().all()  # less than half a number


def by_hand(method: RSC, batch: DomainBatch, n_features: int, n_images: int) -> tuple[Tensor, set]:
    """The loss, image by image: of a linear classifier the gradient is the label's weights."""
    head = method.network.stage("fc2")
    features = method.network.run(batch.images, until="fc2")
    muted, lost = features.clone(), []
    for place, label in enumerate(batch.labels.tolist()):
        for feature in head.weight[label].argsort(descending=True)[:n_features]:
            muted[place, feature] = 0
        before, after = (head(z[place]).softmax(dim=0)[label] for z in (features, muted))
        lost.append((before - after).item())
    chosen = set(sorted(range(len(lost)), key=lambda place: -lost[place])[:n_images])
    used = [muted[p] if p in chosen else features[p] for p in range(len(lost))]
    return functional.cross_entropy(head(torch.stack(used)), batch.labels), chosen


def test_the_loss_by_hand() -> None:
    """Two of four features in three of eight images."""
    method, batch = make(feature_share=0.5, image_share=3 / 8), batch_of(DOMAINS)
    expected, chosen = by_hand(method, batch, 2, 3)
    assert 0 < len(chosen) < 8
    losses = method.loss(batch, START)
    assert_loss(losses["loss"], expected, method)
    assert losses["muted"].item() == pytest.approx(0.5 * 3 / 8)
    plain = functional.cross_entropy(method.network(batch.images), batch.labels)
    assert losses["loss"] > plain + 1e-3  # it is a challenge


def test_without_a_share_nothing_is_muted() -> None:
    batch = batch_of(DOMAINS)
    for shares in ({"feature_share": 0.0}, {"image_share": 0.0}):
        method = make(**shares)
        plain = functional.cross_entropy(method.network(batch.images), batch.labels)
        torch.testing.assert_close(method.loss(batch, START)["loss"], plain)
