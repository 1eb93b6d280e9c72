"""Rules that judge a model without labels of the target, against cases worked out by hand."""

import math

import numpy as np
import pytest

from unseen.results.statistics import (
    Observed,
    density_ratio,
    information_maximisation,
    judge,
    neighbourhood_density,
    nuclear_norm,
    validation_risk,
    weighted_risk,
)

CERTAIN = np.eye(2)[[0, 1, 0, 1]]
ALL_THE_SAME = np.eye(2)[[0, 0, 0, 0]]
UNDECIDED = np.full((4, 2), 0.5)


def test_information_maximisation() -> None:
    assert information_maximisation(CERTAIN) == pytest.approx(math.log(2))
    assert information_maximisation(ALL_THE_SAME) == pytest.approx(0)
    assert information_maximisation(UNDECIDED) == pytest.approx(0)
    mixed = np.array([[0.9, 0.1], [0.1, 0.9]])
    inner = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert information_maximisation(mixed) == pytest.approx(math.log(2) - inner)


def test_soft_neighbourhood_density() -> None:
    """Each image has two twins at cosine 1 and three others at cosine 0: the twins share all but
    e^-20, so the entropy is log 2."""
    groups = np.eye(2)[[0, 0, 0, 1, 1, 1]]
    assert neighbourhood_density(groups) == pytest.approx(math.log(2), abs=1e-6)
    everyone_alike = np.eye(2)[[0] * 6]
    assert neighbourhood_density(everyone_alike) == pytest.approx(math.log(5))
    # three images: the first two are alike, the third lies at 45 degrees to both
    three = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    share = 1 / (1 + math.exp((math.sqrt(0.5) - 1) / 0.05))
    of_first = -share * math.log(share) - (1 - share) * math.log(1 - share)
    expected = (2 * of_first + math.log(2)) / 3
    assert neighbourhood_density(three) == pytest.approx(expected)


def test_nuclear_norm() -> None:
    assert nuclear_norm(CERTAIN) == pytest.approx(1), "two singular values of √2, over √8"
    assert nuclear_norm(ALL_THE_SAME) == pytest.approx(2 / math.sqrt(8)), "one of √4"
    assert nuclear_norm(UNDECIDED) == pytest.approx(math.sqrt(2) / math.sqrt(8))


def test_weighted_risk_takes_out_what_weights_deviate_from_one() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    assert weighted_risk(weights, np.ones(3)) == pytest.approx(1), "their mean is 2, the loss is 1"
    # weighted losses 0, 0, 2: covariance and variance are both 2/3, so 2/3 - 1 + 1
    risk = weighted_risk(np.array([1.0, 0.0, 2.0]), np.array([0.0, 1.0, 1.0]))
    assert risk == pytest.approx(2 / 3)
    assert weighted_risk(np.ones(2), np.array([1.0, 3.0])) == pytest.approx(2)


def test_density_ratio_of_two_places() -> None:
    """Three in four source images lie left, three in four target images right."""
    left, right = np.array([[-1.0]]), np.array([[1.0]])
    source = np.concatenate([left.repeat(300, axis=0), right.repeat(100, axis=0)])
    target = np.concatenate([left.repeat(200, axis=0), right.repeat(600, axis=0)])
    found = density_ratio(source, target, np.concatenate([left, right]))
    np.testing.assert_allclose(found, [1 / 3, 3], rtol=0.03)


def test_validation_risk_is_that_of_images_like_the_target() -> None:
    """The model errs on what lies right, and that is most of the target: 3/4 × 1 in place of the
    source's 1/4."""
    source = np.tile([[-1.0], [-1.0], [-1.0], [1.0]], (200, 1))
    source = source[np.random.default_rng(0).permutation(800)]
    target = np.tile([[-1.0], [1.0], [1.0], [1.0]], (200, 1))
    losses = (source[:, 0] > 0).astype(float)
    assert validation_risk(source, losses, target) == pytest.approx(0.75, abs=0.03)


def test_separable_domains_still_give_a_number() -> None:
    random = np.random.default_rng(0)
    source, target = random.normal(0, 1, (60, 5)), random.normal(9, 1, (50, 5))
    assert math.isfinite(validation_risk(source, np.ones(60), target))


def test_all_of_them_at_once_and_higher_is_better() -> None:
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 60)
    places = np.eye(3)[labels]
    features = places + 0.1 * random.normal(size=(60, 3))
    good = Observed(5 * places, features)
    bad = Observed(0.1 * random.normal(size=(60, 3)), features)
    better, worse = judge(good, good, labels), judge(bad, bad, labels)
    assert list(better) == ["infomax", "snd", "bnm", "dev"]
    for rule in ("infomax", "bnm", "dev"):
        assert better[rule] > worse[rule]
    assert better["dev"] == pytest.approx(-math.log(1 + 2 * math.exp(-5)), rel=1e-3)
