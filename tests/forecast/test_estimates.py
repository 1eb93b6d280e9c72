"""Each estimate against a case worked out by hand; references, weights and intervals."""

import numpy as np
import pytest
from tests.forecast.made import profile

from unseen.forecast.estimate import (
    DIRECT,
    USUAL_ERROR,
    Reference,
    class_separation,
    combine,
    confidence_difference,
    drop_at,
    fit_curve,
    gaps,
    neighbour_agreement,
    thresholded_confidence,
)
from unseen.forecast.profile import ModelOutputs
from unseen.results.statistics import nuclear_norm

RIGHT = np.array([True, True, True, False])


def test_estimates_by_hand() -> None:
    # ATC: three of four are right, so that the threshold is the third highest: 0.6
    source = np.array([0.9, 0.6, 0.8, 0.5])
    assert thresholded_confidence(source, RIGHT, source) == 0.75
    target = np.array([0.95, 0.6, 0.59, 0.2, 0.1])
    assert thresholded_confidence(source, RIGHT, target) == pytest.approx(2 / 5)
    assert thresholded_confidence(source, np.zeros(4, bool), target) == 0
    assert thresholded_confidence(source, np.ones(4, bool), np.array([0.5, 0.4])) == 0.5
    # DoC: 0.75 + 0.6 - 0.75
    source, target = np.array([0.9, 0.7, 0.8, 0.6]), np.array([0.6, 0.6])
    assert confidence_difference(source, RIGHT, target) == pytest.approx(0.6)
    assert nuclear_norm(np.eye(3)[[0, 1, 2, 0, 1, 2]]) == pytest.approx(1)
    # all images in one class: one singular value √4, divided by √(4 · 2)
    assert nuclear_norm(np.eye(2)[[0, 0, 0, 0]]) == pytest.approx(0.5**0.5)
    labels = np.array([0, 0, 1, 1])
    assert class_separation(np.array([[0.0], [0.0], [4.0], [4.0]]), labels) == pytest.approx(1)
    # squares around the mean 2: 4 · 4 + 4 · 1 = 20, of which 4 lie within classes
    values = np.array([[-1.0], [1.0], [3.0], [5.0]])
    assert class_separation(values, labels) == pytest.approx(1 - 4 / 20)
    assert class_separation(np.ones((4, 2)), labels) == 0


def test_gaps_follow_confidence_and_not_constants_of_scores() -> None:
    """Logarithms of probabilities, as an ONNX file gives them, do as well as logits."""
    source = profile(features=False)
    same = gaps(source, ModelOutputs(source.scores))
    assert same == pytest.approx(dict.fromkeys((*DIRECT, "nuclear norm"), 0), abs=0.02)
    unsure = gaps(source, ModelOutputs(0.2 * source.scores))
    assert all(unsure[name] > 0.1 for name in same)
    some, constants = source.scores[:20].astype(np.float64), 5 * np.arange(20.0)[:, None]
    one, other = gaps(source, ModelOutputs(some)), gaps(source, ModelOutputs(some - constants))
    assert one == pytest.approx(other, abs=1e-9)


def test_neighbours_vote_on_each_answer() -> None:
    known = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [0.0, 1.0], [0.1, 1.0]])
    labels = np.array([2, 2, 2, 0, 0])
    features = np.array([[5.0, 0.2], [3.0, 0.0]])
    # all five are neighbours of both images, and three of them say 2
    assert neighbour_agreement(features, np.array([2, 0]), known, labels) == 0.5
    many, names = np.repeat(known, 5, axis=0), np.repeat(labels, 5)
    assert neighbour_agreement(np.array([[0.0, 9.0]]), np.array([0]), many, names) == 1
    assert neighbour_agreement(many, names, many, names, skip_itself=True) == 1


def reference(domain: str, drop: float, **gaps: float) -> Reference:
    named = {name.replace("_", " "): value for name, value in gaps.items()}
    return Reference(f"run on {domain}", domain, 0.9, 0.9 - drop, named)


def test_without_references_the_drop_is_the_gap() -> None:
    np.testing.assert_array_equal(fit_curve([], "doc"), [0, 1])
    assert drop_at(np.array([0, 1]), 0.07) == pytest.approx(0.07)
    # tanh(1) of the step at a gap of 0.05, none of it where images are easier
    curve = np.array([0.1, 2])
    assert drop_at(curve, 0.05) == pytest.approx(0.1 * np.tanh(1) + 0.1)
    assert drop_at(curve, -0.05) == pytest.approx(-0.1)


def test_one_reference_moves_the_curve_as_a_regression_around_the_line() -> None:
    # worked out for a gap of 1, where tanh is 1: x = (1, 1), d = 1.5, prior precisions
    # 0.03²/0.1² = 0.09 and 0.03²/0.5² = 0.0036; both move by the residual 0.5 times their share
    found = fit_curve([reference("a", 1.5, doc=1.0)], "doc")
    share = 0.5 / (1 + 1 / 0.09 + 1 / 0.0036)
    assert found == pytest.approx([share / 0.09, 1 + share / 0.0036])


def test_many_references_on_a_curve_are_followed_and_a_domain_counts_once() -> None:
    curve = np.array([0.05, 1.4])
    gaps = (-0.1, 0.05, 0.1, 0.2, 0.3)
    references = [reference(f"{n} {g}", drop_at(curve, g), doc=g) for g in gaps for n in range(20)]
    assert fit_curve(references, "doc") == pytest.approx(curve, abs=0.01)
    a, b = reference("a", 0.3, doc=0.1), reference("b", 0.1, doc=0.1)
    assert fit_curve([a, a, a, b], "doc") == pytest.approx(fit_curve([a, b], "doc"))
    once, often = (combine(0.9, {"doc": 0.1}, each, 100) for each in ([a, b], [a, a, a, b]))
    assert (often.error, often.accuracy) == pytest.approx((once.error, once.accuracy))


def test_the_estimate_that_did_better_weighs_more() -> None:
    references = [
        reference("a", 0.20, doc=0.20, neighbours=0.00),
        reference("b", 0.10, doc=0.10, neighbours=0.25),
        reference("c", 0.30, doc=0.30, neighbours=0.10),
    ]
    found = combine(0.9, {"doc": 0.2, "neighbours": 0.2}, references, 10_000)
    doc, other = found.estimates
    assert doc.weight > 9 * other.weight
    assert doc.weight + other.weight == pytest.approx(1)
    assert (doc.error or 1) < 0.05 < (other.error or 0)
    assert doc.accuracy == pytest.approx(0.7, abs=0.03)
    together = doc.weight * (doc.accuracy or 0) + other.weight * (other.accuracy or 0)
    assert found.accuracy == pytest.approx(together)


def test_without_references_one_estimate_counts_in_a_wide_interval() -> None:
    gaps = {"atc": 0.1, "doc": 0.2, "nuclear norm": 0.5}
    found = combine(0.95, gaps, [], 10_000)
    assert found.accuracy == pytest.approx(0.85)
    assert found.error == USUAL_ERROR
    # Student's t with two degrees, 90 %: 1.886
    assert found.low == pytest.approx(0.85 - 1.886 * USUAL_ERROR, abs=0.002)
    assert found.high == 1, "never above"
    assert found.interval == "80 % interval 68 to 100"
    assert [each.weight for each in found.estimates] == [1, 0, 0]
    assert [each.plain for each in found.estimates] == pytest.approx([0.85, 0.75, None])


def test_references_that_fit_narrow_the_interval_and_few_images_widen_it() -> None:
    good = [reference(name, drop, doc=drop) for name, drop in (("a", 0.1), ("b", 0.2), ("c", 0.3))]
    bad = [reference(name, drop, doc=0.1) for name, drop in (("a", -0.2), ("b", 0.2), ("c", 0.5))]

    def width(references: list[Reference], images: int = 10_000) -> float:
        found = combine(0.8, {"atc": 0.2, "doc": 0.2}, references, images)
        return found.high - found.low

    assert width(good) < min(width([]), width(bad), width(good[:1]), width(good, 20))


def test_an_estimate_that_a_reference_lacks_is_left_out() -> None:
    references = [reference("a", 0.2, doc=0.2), reference("b", 0.2, doc=0.2, neighbours=0.1)]
    found = combine(0.9, {"doc": 0.1, "neighbours": 0.3}, references, 100)
    assert [each.weight for each in found.estimates] == [1, 0]
