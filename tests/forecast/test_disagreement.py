"""How far opinions lie apart, against values worked out by hand."""

import math

import numpy as np
import pytest

from unseen.forecast.profile import disagreement


@pytest.mark.parametrize(
    ("opinions", "expected"),
    [
        ([[0.2, 0.8], [0.2, 0.8]], 0.0),
        ([[1, 0], [0, 1]], 1.0),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 1.0),
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], 1.0),
        ([[1, 0], [0, 1], [1, 0]], 1.0),  # three opinions on two classes: two to one is the most
        ([[0.3, 0.7]], 0.0),
        # means (3/4, 1/4): H = 0.56234, mean of H = ln 2 / 2, divided by ln 2
        ([[1, 0], [0.5, 0.5]], (0.5623351446 - math.log(2) / 2) / math.log(2)),
    ],
)
def test_by_hand(opinions: list[list[float]], expected: float) -> None:
    assert disagreement(np.array(opinions)) == pytest.approx(expected, abs=1e-9)


def test_one_number_for_each_image() -> None:
    opinions = np.array([[[1, 0], [0, 1]], [[0.5, 0.5], [0.5, 0.5]]], dtype=np.float32)
    np.testing.assert_allclose(disagreement(opinions), [1, 0], atol=1e-7)


def test_always_between_0_and_1() -> None:
    random = np.random.default_rng(0)
    for n_domains, n_classes in ((2, 2), (3, 7), (7, 3), (5, 5)):
        sharp = random.exponential(size=(100, n_domains, n_classes)) ** 9
        found = disagreement(sharp / sharp.sum(axis=-1, keepdims=True))
        assert found.min() >= 0
        assert found.max() <= 1
        assert found.max() > 0.5
