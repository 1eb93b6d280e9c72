"""References: curves between gap and drop, weights, and intervals."""

import numpy as np
import pytest

from unseen.forecast.estimate import USUAL_ERROR, Curve, Reference, combine, fit_curve


def reference(domain: str, drop: float, **gaps: float) -> Reference:
    named = {name.replace("_", " "): value for name, value in gaps.items()}
    return Reference(f"run on {domain}", domain, 0.9, 0.9 - drop, named)


def test_without_references_the_drop_is_the_gap() -> None:
    assert fit_curve([], "doc") == Curve(0, 1)
    assert Curve(0, 1).drop(0.07) == pytest.approx(0.07)
    # tanh(1) of the step at a gap of 0.05, none of it where images are easier
    assert Curve(0.1, 2).drop(0.05) == pytest.approx(0.1 * np.tanh(1) + 0.1)
    assert Curve(0.1, 2).drop(-0.05) == pytest.approx(-0.1)


def test_one_reference_moves_the_curve_as_a_regression_around_the_line() -> None:
    # worked out for a gap of 1, where tanh is 1: x = (1, 1), d = 1.5, prior precisions
    # 0.05²/0.1² = 0.25 and 0.05²/0.5² = 0.01; both move by the residual 0.5 times their share
    found = fit_curve([reference("a", 1.5, doc=1.0)], "doc")
    share = 0.5 / (1 + 1 / 0.25 + 1 / 0.01)
    assert found.step == pytest.approx(share / 0.25)
    assert found.slope == pytest.approx(1 + share / 0.01)


def test_many_references_on_a_curve_are_followed_and_a_domain_counts_once() -> None:
    curve = Curve(0.05, 1.4)
    gaps = (-0.1, 0.05, 0.1, 0.2, 0.3)
    references = [reference(f"{n} {g}", curve.drop(g), doc=g) for g in gaps for n in range(20)]
    assert fit_curve(references, "doc") == pytest.approx(curve, abs=0.01)
    one, other = reference("a", 0.3, doc=0.1), reference("b", 0.1, doc=0.1)
    assert fit_curve([one, one, one, other], "doc") == pytest.approx(fit_curve([one, other], "doc"))


def test_the_estimate_that_did_better_weighs_more() -> None:
    references = [
        reference("a", 0.20, doc=0.20, cot=0.00),
        reference("b", 0.10, doc=0.10, cot=0.25),
        reference("c", 0.30, doc=0.30, cot=0.10),
    ]
    found = combine(0.9, {"doc": 0.2, "cot": 0.2}, references, 10_000)
    doc, cot = found.estimates
    assert doc.weight > 3 * cot.weight
    assert doc.weight + cot.weight == pytest.approx(1)
    assert doc.error is not None
    assert cot.error is not None
    assert doc.error < 0.05 < cot.error
    assert doc.accuracy is not None
    assert doc.accuracy == pytest.approx(0.7, abs=0.03)
    assert found.accuracy == pytest.approx(
        doc.weight * doc.accuracy + cot.weight * (cot.accuracy or 0)
    )


def test_without_references_direct_estimates_are_averaged_in_a_wide_interval() -> None:
    gaps = {"doc": 0.1, "cot": 0.2, "nuclear norm": 0.5}
    found = combine(0.9, gaps, [], 10_000)
    assert found.accuracy == pytest.approx(0.75)
    assert found.error == USUAL_ERROR
    # Student's t with two degrees, 90 %: 1.886
    assert found.low == pytest.approx(0.75 - 1.886 * USUAL_ERROR, abs=0.002)
    assert found.high == 1
    measure = found.estimates[-1]
    assert (measure.plain, measure.accuracy, measure.weight) == (None, None, 0)


def test_references_that_fit_narrow_the_interval_and_few_images_widen_it() -> None:
    good = [
        reference(name, drop, doc=drop) for name, drop in zip("abc", (0.1, 0.2, 0.3), strict=True)
    ]
    bad = [
        reference(name, drop, doc=0.1) for name, drop in zip("abc", (-0.2, 0.2, 0.5), strict=True)
    ]

    def width(references: list[Reference], images: int) -> float:
        found = combine(0.8, {"doc": 0.2}, references, images)
        return found.high - found.low

    assert width(good, 10_000) < width([], 10_000)
    assert width(good, 10_000) < width(bad, 10_000)
    assert width(good, 10_000) < width(good[:1], 10_000)
    assert width(good, 20) > width(good, 10_000)


def test_an_estimate_that_a_reference_lacks_is_left_out() -> None:
    references = [reference("a", 0.2, doc=0.2), reference("b", 0.2, doc=0.2, disagreement=0.1)]
    found = combine(0.9, {"doc": 0.1, "disagreement": 0.3}, references, 100)
    assert [each.weight for each in found.estimates] == [1, 0]


def test_runs_of_one_domain_share_one_vote_in_errors() -> None:
    a, b = reference("a", 0.3, doc=0.1), reference("b", 0.1, doc=0.1)
    once = combine(0.9, {"doc": 0.1}, [a, b], 100)
    often = combine(0.9, {"doc": 0.1}, [a, a, a, b], 100)
    assert often.error == pytest.approx(once.error)
    assert often.accuracy == pytest.approx(once.accuracy)
