import subprocess
import sys

import pytest

from unseen.results.statistics import (
    Estimate,
    estimate,
    macro_mean,
    paired_difference,
    worst_domain,
)


def test_three_seeds_by_hand():
    # mean 62, standard deviation 2, t(2 degrees of freedom) = 4.30265: 4.30265 * 2 / sqrt(3)
    assert estimate([60.0, 62.0, 64.0]) == (62.0, pytest.approx(4.96828, abs=1e-5), 3)


def test_two_seeds_by_hand():
    # standard deviation sqrt(2), t(1) = 12.7062: 12.7062 * sqrt(2) / sqrt(2)
    assert estimate([1.0, 3.0]) == (2.0, pytest.approx(12.7062, abs=1e-4), 2)


def test_equal_seeds_have_no_width():
    assert estimate([5.0, 5.0, 5.0]) == Estimate(5.0, 0.0, 3)


def test_one_seed_has_no_interval_and_none_is_nothing():
    assert estimate([0.5]) == Estimate(0.5, None, 1)
    assert estimate([]) is None


def test_paired_difference_uses_shared_seeds_only():
    first = {0: 60.0, 1: 70.0, 2: 80.0}
    second = {1: 71.0, 2: 83.0, 3: 10.0}
    mean, half_width, n = paired_difference(first, second) or pytest.fail("no difference")
    assert (mean, n) == (2.0, 2)
    assert half_width == pytest.approx(12.7062, abs=1e-4)


def test_pairing_removes_what_a_seed_does_to_both():
    noise = {0: 10.0, 1: 50.0, 2: 90.0}
    better = {seed: value + 1 for seed, value in noise.items()}
    assert paired_difference(noise, better) == (1.0, 0.0, 3)


def test_nothing_in_common():
    assert paired_difference({0: 1.0}, {1: 1.0}) is None


def test_macro_mean_counts_domains_equally_and_refuses_gaps():
    accuracies = {"a": 0.2, "b": 0.6, "c": 1.0}
    assert macro_mean(accuracies, ["a", "b"]) == pytest.approx(0.4)
    assert macro_mean(accuracies, ["a", "d"]) is None
    assert macro_mean({"a": float("nan")}, ["a"]) is None
    assert macro_mean(accuracies, []) is None


def test_worst_domain_is_the_first_of_equals():
    assert worst_domain({"a": 0.5, "b": 0.2, "c": 0.2}) == ("b", 0.2)


def test_reports_load_neither_torch_nor_scipy_on_import():
    code = (
        "import sys, unseen.reports.formats, unseen.results.rules;"
        "print([m for m in ('torch', 'scipy', 'matplotlib', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
