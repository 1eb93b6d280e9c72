"""Spectral decoupling: the squared scores, their weight and their sign."""

import pytest
import torch
from tests.methods.batches import batch_of, gradients, tiny_network
from torch.nn import functional

from unseen.data.batch import Task
from unseen.methods.base import Progress
from unseen.methods.sd import SD

pytestmark = pytest.mark.usefixtures("in_double_precision")
START = Progress(0, 10)


def make(**settings) -> SD:
    return SD(tiny_network(), Task(("a", "b", "c"), ("k", "l")), SD.Config(name="sd", **settings))


def test_the_penalty_by_hand() -> None:
    """With weights zero the scores are the biases (1, −2, 0) for all images: (1 + 4 + 0) / 3."""
    method = make(penalty_weight=0.5)
    with torch.no_grad():
        method.network.stage("fc2").weight.zero_()
        method.network.stage("fc2").bias.copy_(torch.tensor([1.0, -2.0, 0.0]))
    losses = method.loss(batch_of([0, 0, 1, 1]), START)
    assert losses["penalty"].item() == pytest.approx(5 / 3)
    assert (losses["loss"] - losses["task"]).item() == pytest.approx(0.5 * 5 / 3)


def test_the_gradient_has_twice_the_scores() -> None:
    method, batch = make(penalty_weight=0.7), batch_of([0, 0, 1, 1])
    scores = method.network(batch.images)
    pull = 2 * 0.7 * scores.detach() / scores.numel()  # by the scores, towards zero
    expected = gradients(
        functional.cross_entropy(scores, batch.labels) + (pull * scores).sum(), method
    )
    found = gradients(method.loss(batch, START)["loss"], method)
    torch.testing.assert_close(found, expected)
