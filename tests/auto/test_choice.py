"""The choice among candidates, and what it makes of places: numbers that are worked out by hand."""

import math
from itertools import combinations

import pytest

from unseen.automatic.choice import (
    EVERYWHERE,
    Cell,
    Design,
    Row,
    best_rows,
    choose,
    choose_by_validation,
    choose_in,
    expect,
    honest,
    longest,
)

PLACES = ("a", "b", "c", "d")
SIMPLEST_FIRST = ("plain", "copies", "masks")


def row_scores(*values: float) -> dict[str, float]:
    return dict(zip(PLACES, values, strict=False))


def cells(values: dict[str, float], nested: bool = True) -> dict[Cell, float]:
    """What a candidate is worth on each place, whatever else is left out."""
    places = tuple(values)
    out = [frozenset({place}) for place in places]
    out += [frozenset(pair) for pair in combinations(places, 2) if nested]
    return {Cell(left_out, place, 0): values[place] for left_out in out for place in left_out}


def test_the_simplest_within_one_standard_error_of_the_best_is_chosen() -> None:
    """Differences 0.02, 0.00, 0.02, 0.00: mean 0.01, standard deviation 0.011547, error 0.0057735;
    and 0.01, 0.00, 0.00, 0.00: mean and error 0.0025."""
    best = row_scores(0.72, 0.60, 0.72, 0.60)
    worse = row_scores(0.70, 0.60, 0.70, 0.60)
    as_good = row_scores(0.71, 0.60, 0.72, 0.60)
    found = choose({("plain", 1): worse, ("masks", 1): best}, SIMPLEST_FIRST)
    assert found.row == ("masks", 1)
    assert found.behind == 0
    found = choose({("plain", 1): as_good, ("masks", 1): best}, SIMPLEST_FIRST)
    assert found.row == ("plain", 1)
    assert found.best == ("masks", 1)
    assert found.behind == pytest.approx(0.0025)
    assert found.noise == pytest.approx(0.0025)


def test_a_simpler_candidate_may_cost_a_point_at_most() -> None:
    """Three points behind on average, with a standard error of three: places differ that much."""
    best = row_scores(0.70, 0.72, 0.74, 0.88)
    for cost, chosen in ((0.12, "masks"), (0.03, "plain")):
        rows = {("plain", 1): best | {"a": best["a"] - cost}, ("masks", 1): best}
        assert choose(rows, SIMPLEST_FIRST).row[0] == chosen


def test_of_equal_candidates_the_simplest_is_best() -> None:
    same = row_scores(0.7, 0.6)
    found = choose({("masks", 1): same, ("copies", 1): same}, SIMPLEST_FIRST)
    assert found.row == found.best == ("copies", 1)


def test_a_candidate_counts_with_its_longest_training() -> None:
    assert longest([("copies", 100), ("masks", 100), ("copies", 300)]) == [
        ("copies", 300),
        ("masks", 100),
    ]


@pytest.mark.parametrize(
    ("places", "nested", "runs"),
    [(2, False, 2), (3, False, 3), (3, True, 6), (4, False, 4), (4, True, 6), (6, True, 15)],
)
def test_runs_that_a_candidate_is_judged_by(places: int, nested: bool, runs: int) -> None:
    """From four places on, pairs serve all branches."""
    design = Design(tuple("abcdef"[:places]), nested)
    assert len(design.all_runs) == len(set(design.all_runs)) == runs
    for branch in design.branches:
        assert set(design.runs(branch)) <= set(design.all_runs)
        assert all(branch < left_out for left_out in design.runs(branch))


@pytest.mark.parametrize("places", [3, 4, 5])
def test_labels_of_a_place_have_no_part_in_the_choice_for_it(places: int) -> None:
    """Whatever is measured on a place, and whatever runs that trained on it are worth, the choice
    that leaves it out stays the same; the choice for all places does not."""
    names = PLACES[:places] if places < 5 else (*PLACES, "e")
    design = Design(names, nested=True)
    scores = {
        ("plain", 1): cells(dict.fromkeys(names, 0.5)),
        ("copies", 1): cells({place: 0.6 + 0.01 * n for n, place in enumerate(names)}),
        ("masks", 1): cells({place: 0.59 + 0.01 * n for n, place in enumerate(names)}),
    }
    chosen = choose_in(design, frozenset({"a"}), scores, SIMPLEST_FIRST)
    finalists = best_rows(design, frozenset({"a"}), scores, list(scores), 2)
    for row in scores:
        for cell in scores[row]:
            if cell.place == "a" or "a" not in cell.left_out:
                scores[row][cell] = 0.99 if row[0] == "plain" else 0.01
    assert choose_in(design, frozenset({"a"}), scores, SIMPLEST_FIRST) == chosen
    assert best_rows(design, frozenset({"a"}), scores, list(scores), 2) == finalists
    everywhere = choose_in(design, EVERYWHERE, scores, SIMPLEST_FIRST)
    assert everywhere is not None
    assert everywhere.row[0] == "plain"


def test_a_candidate_without_all_its_runs_is_not_compared() -> None:
    design = Design(PLACES, nested=True)
    scores = {("plain", 1): cells(row_scores(0.5, 0.5, 0.5, 0.5)), ("masks", 1): {}}
    scores["masks", 1] = cells(row_scores(0.9, 0.9, 0.9, 0.9))
    del scores["masks", 1][Cell(frozenset({"a", "b"}), "b", 0)]
    found = {b: choose_in(design, b, scores, SIMPLEST_FIRST) for b in design.branches}
    chosen = {branch: choice.row[0] for branch, choice in found.items() if choice is not None}
    without = {frozenset("b"): "masks", frozenset("c"): "masks", frozenset("d"): "masks"}
    assert chosen == {EVERYWHERE: "plain", frozenset("a"): "plain"} | without


def test_seeds_are_averaged_before_places_are_compared() -> None:
    design = Design(("a", "b"), nested=False, seeds=(0, 1))
    found = {
        Cell(frozenset({place}), place, seed): 0.5 + 0.2 * seed + 0.1 * (place == "b")
        for place in "ab"
        for seed in (0, 1)
    }
    assert design.scores(found, EVERYWHERE) == pytest.approx({"a": 0.6, "b": 0.7})


def test_the_interval_for_a_new_place() -> None:
    """Two places, 0.6 and 0.8: squares 0.02 + 0.1², two degrees of freedom, t = 1.8856."""
    found = expect({"a": 0.6, "b": 0.8}, {}, "nested")
    half = 1.885618 * math.sqrt(0.03 / 2 * 1.5)
    assert (found.mean, found.low) == pytest.approx((0.7, 0.7 - half), abs=1e-6)
    assert found.high == pytest.approx(0.7 + half, abs=1e-6)
    assert found.hardest == "a"
    assert expect({"a": 0.99, "b": 0.97}, {}, "nested").high == 1.0
    assert expect({"a": 0.01, "b": 0.03}, {}, "nested").low == 0.0


def test_each_place_is_judged_by_what_was_chosen_without_it() -> None:
    design = Design(("a", "b", "c"), nested=True)
    scores: dict[Row, dict[Cell, float]] = {
        ("plain", 1): cells({"a": 0.5, "b": 0.6, "c": 0.7}),
        ("masks", 1): cells({"a": 0.8, "b": 0.4, "c": 0.9}),
    }
    choices: dict[str, Row] = {"a": ("plain", 1), "b": ("masks", 1), "c": ("masks", 1)}
    found = honest(design, scores, choices, "nested")
    assert found is not None
    assert found.by_place == {"a": 0.5, "b": 0.4, "c": 0.9}
    del scores["masks", 1][Cell(frozenset("c"), "c", 0)]
    assert honest(design, scores, choices, "nested") is None


def test_a_random_split_chooses_by_validation_images_of_the_places_that_trained() -> None:
    validation = {
        ("plain", 1): cells({"a": 0.9, "b": 0.8, "c": 0.7}),
        ("masks", 1): cells({"a": 0.8, "b": 0.9, "c": 0.6}),
    }
    assert choose_by_validation(validation, "a") == ("plain", 1)
    assert choose_by_validation(validation, "b") == ("masks", 1)
