"""Intervals, temperature and rules without labels, against cases that can be worked out by hand."""

import math
import subprocess
import sys

import numpy as np
import pytest

from unseen.results.statistics import (
    COLDEST,
    HOTTEST,
    Estimate,
    above_zero,
    density_ratio,
    estimate,
    fit_temperature,
    information_maximisation,
    judge,
    log_softmax,
    macro_mean,
    neighbourhood_density,
    nuclear_norm,
    paired_difference,
    validation_risk,
    weighted_risk,
    worst_domain,
)


def test_intervals_by_hand_and_of_scipy() -> None:
    from scipy import stats

    # standard deviation 2, t(2 degrees of freedom) = 4.30265: 4.30265 * 2 / sqrt(3)
    assert estimate([60.0, 62.0, 64.0]) == (62.0, pytest.approx(4.96828, abs=1e-4), 3)
    # standard deviation sqrt(2), t(1) = 12.7062: 12.7062 * sqrt(2) / sqrt(2)
    assert estimate([1.0, 3.0]) == (2.0, pytest.approx(12.7062, abs=1e-4), 2)
    assert estimate([5.0, 5.0, 5.0]) == (5.0, 0.0, 3)
    for n in (3, 5, 30):
        values = np.random.default_rng(n).normal(70, 5, n)
        found = estimate(values.tolist())
        low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
        mean, half = pytest.approx(values.mean(), rel=1e-12), pytest.approx((high - low) / 2)
        assert found == (mean, half, n)


def test_one_seed_has_no_interval_and_none_is_nothing() -> None:
    assert estimate([0.5]) == Estimate(0.5, None, 1)
    assert estimate([]) is None
    assert not above_zero(None)
    assert not above_zero(Estimate(3.0, None, 1))
    assert [above_zero(Estimate(3.0, half, 3)) for half in (2.9, 3.0)] == [True, False]


def test_paired_difference_uses_shared_seeds_and_removes_what_a_seed_does_to_both() -> None:
    found = paired_difference({0: 60.0, 1: 70.0, 2: 80.0}, {1: 71.0, 2: 83.0, 3: 10.0})
    assert found == (2.0, pytest.approx(12.7062, abs=1e-4), 2)
    noise = {0: 10.0, 1: 50.0, 2: 90.0}
    assert paired_difference(noise, {seed: noise[seed] + 1 for seed in noise}) == (1.0, 0.0, 3)
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_macro_mean_counts_domains_equally_and_refuses_gaps() -> None:
    accuracies = {"a": 0.2, "b": 0.6, "c": 1.0}
    assert macro_mean(accuracies, ["a", "b"]) == pytest.approx(0.4)
    assert macro_mean(accuracies, ["a", "d"]) is None
    assert macro_mean({"a": float("nan")}, ["a"]) is None
    assert macro_mean(accuracies, []) is None
    assert worst_domain({"a": 0.5, "b": 0.2, "c": 0.2}) == ("b", 0.2)


def test_reports_load_neither_torch_nor_scipy_on_import() -> None:
    code = (
        "import sys, unseen.reports.formats, unseen.results.rules;"
        "print([m for m in ('torch', 'scipy', 'typst', 'rich.console') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def two_classes(gap: float, right: int, wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """Always the first class by `gap`, which is right so often."""
    scores = np.tile([gap, 0.0], (right + wrong, 1))
    return scores, np.array([0] * right + [1] * wrong)


@pytest.mark.parametrize(
    ("domains", "temperature"),
    [
        ([(4.0, 3, 1)], 4 / math.log(3)),  # sigmoid(gap / T) = 3/4
        # every domain weighs the same, however many images it has: (3/4 + 1/2 + 1) / 3 is 3/4
        ([(2.0, 3, 1), (2.0, 200, 200), (2.0, 10, 0)], 2 / math.log(3)),
        ([(4.0, 9, 0)], None),  # no wrong answer to fit on
        ([(4.0, 0, 0)], None),
        ([(0.01, 999, 1)], COLDEST),
        ([(9.0, 1, 9)], HOTTEST),
    ],
)
def test_confidence_becomes_the_share_of_right_answers(
    domains: list[tuple[float, int, int]], temperature: float | None
) -> None:
    scores, labels = zip(*(two_classes(*domain) for domain in domains), strict=True)
    expected = None if temperature is None else pytest.approx(temperature, rel=1e-5)
    assert fit_temperature(scores, labels) == expected
    shifted = [each + np.linspace(-900, 1e3, len(each))[:, None] for each in scores]
    assert fit_temperature(shifted, labels) == expected


def test_the_temperature_is_the_least_of_a_likelihood_with_many_classes() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(0, 6, (200, 5))
    labels = np.where(random.random(200) < 0.6, scores.argmax(1), random.integers(0, 5, 200))
    found = fit_temperature([scores], [labels])
    assert found is not None

    def loss(temperature: float) -> float:
        return -float(log_softmax(scores / temperature)[np.arange(200), labels].mean())

    assert loss(found) < min(loss(0.98 * found), loss(1.02 * found), loss(1.0))


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
    assert neighbourhood_density(np.eye(2)[[0] * 6]) == pytest.approx(math.log(5))
    # three images: the first two are alike, the third lies at 45 degrees to both
    three = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
    share = 1 / (1 + math.exp((math.sqrt(0.5) - 1) / 0.05))
    of_first = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert neighbourhood_density(three) == pytest.approx((2 * of_first + math.log(2)) / 3)


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


def test_validation_risk_is_that_of_images_like_the_target() -> None:
    """Three in four source images lie left, three in four target images right. The model errs on
    what lies right, and that is most of the target: 3/4 × 1 in place of the source's 1/4. Domains
    that are separable still give a number."""
    random, (left, right) = np.random.default_rng(0), ([-1.0], [1.0])
    source = np.tile([left, left, left, right], (200, 1))[random.permutation(800)]
    target = np.tile([left, right, right, right], (200, 1))
    ratio = density_ratio(source, target, np.array([left, right]))
    np.testing.assert_allclose(ratio, [1 / 3, 3], rtol=0.03)
    losses = (source[:, 0] > 0).astype(float)
    assert validation_risk(source, losses, target) == pytest.approx(0.75, abs=0.03)
    source, target = random.normal(0, 1, (60, 5)), random.normal(9, 1, (50, 5))
    assert math.isfinite(validation_risk(source, np.ones(60), target))


def test_all_of_them_at_once_and_higher_is_better() -> None:
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 60)
    places = np.eye(3)[labels]
    features = places + 0.1 * random.normal(size=(60, 3))
    good = (5 * places, features)
    bad = (0.1 * random.normal(size=(60, 3)), features)
    better, worse = judge(good, good, labels), judge(bad, bad, labels)
    assert list(better) == ["infomax", "snd", "bnm", "dev"]
    for rule in ("infomax", "bnm", "dev"):
        assert better[rule] > worse[rule]
    assert better["dev"] == pytest.approx(-math.log(1 + 2 * math.exp(-5)), rel=1e-3)
