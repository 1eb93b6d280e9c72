"""The choice among candidates, and what it makes of places: numbers that are worked out by hand."""

import math
from itertools import combinations

import pytest

from unseen.automatic.choice import EVERYWHERE, NESTED, Cell, Design, choose, expect

PLACES = ("a", "b", "c", "d")
SIMPLEST_FIRST = ("plain", "copies", "masks")


def row_scores(*values: float) -> dict[str, float]:
    return dict(zip(PLACES, values, strict=False))


def cells(values: dict[str, float]) -> dict[Cell, float]:
    """What a candidate is worth on each place, whatever else is left out."""
    out = [frozenset({place}) for place in values] + [*map(frozenset, combinations(values, 2))]
    return {Cell(left_out, place, 0): values[place] for left_out in out for place in left_out}


@pytest.mark.parametrize(
    ("simpler", "best", "chosen", "behind", "noise"),
    [
        # differences 0.02, 0, 0.02, 0: mean 0.01, deviation 0.011547, standard error 0.0057735
        ((0.70, 0.60, 0.70, 0.60), (0.72, 0.60, 0.72, 0.60), "masks", 0, 0),
        # 0.01, 0, 0, 0: mean and standard error 0.0025
        ((0.71, 0.60, 0.72, 0.60), (0.72, 0.60, 0.72, 0.60), "plain", 0.0025, 0.0025),
        # three points behind with a standard error of three: more than a point is too much
        ((0.58, 0.72, 0.74, 0.88), (0.70, 0.72, 0.74, 0.88), "masks", 0, 0),
        ((0.67, 0.72, 0.74, 0.88), (0.70, 0.72, 0.74, 0.88), "plain", 0.0075, 0.0075),
        ((0.7, 0.6), (0.7, 0.6), "plain", 0, 0),
    ],
)
def test_the_simplest_that_is_not_worse_by_more_than_noise_or_a_point(
    simpler: tuple[float, ...], best: tuple[float, ...], chosen: str, behind: float, noise: float
) -> None:
    rows = {("masks", 1): row_scores(*best), ("plain", 1): row_scores(*simpler)}
    found = choose(rows, SIMPLEST_FIRST)
    assert found is not None
    assert found.row == (chosen, 1)
    assert (found.behind, found.noise) == pytest.approx((behind, noise))
    assert found.best == ("plain" if simpler == best else "masks", 1)


def test_a_candidate_counts_with_its_longest_training() -> None:
    rows = {("plain", 100): 0.9, ("masks", 100): 0.7, ("plain", 300): 0.5}
    found = choose({row: {"a": value} for row, value in rows.items()}, SIMPLEST_FIRST)
    assert found is not None
    assert found.row == ("masks", 100)
    assert choose({}, SIMPLEST_FIRST) is None


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
    """Whatever is measured on a place, and whatever runs that trained on it are worth, nothing
    changes in what the choice that leaves it out looks at; the choice for all places changes."""
    names, branch = (*PLACES, "e")[:places], frozenset({"a"})
    design = Design(names, nested=True)
    values = {name: 0.5 + 0.01 * n for n, name in enumerate(names)}
    scores = {(name, 1): cells(values) for name in ("plain", "masks")}
    before = design.worth(scores, branch)
    assert before.keys() == scores.keys()
    for row in scores:
        for cell in scores[row]:
            if cell.place == "a" or "a" not in cell.left_out:
                scores[row][cell] = 0.99 if row[0] == "masks" else 0.01
    assert design.worth(scores, branch) == before
    everywhere = choose(design.worth(scores), SIMPLEST_FIRST)
    assert everywhere is not None
    assert everywhere.row[0] == "masks"


def test_a_candidate_without_all_its_runs_is_not_compared() -> None:
    design = Design(PLACES, nested=True)
    scores = {("masks", 1): cells(dict.fromkeys(PLACES, 0.9))}
    del scores["masks", 1][Cell(frozenset({"a", "b"}), "b", 0)]
    missing = [branch for branch in design.branches if not design.worth(scores, branch)]
    assert missing == [EVERYWHERE, frozenset("a")]


def test_seeds_are_averaged_before_places_are_compared() -> None:
    design = Design(("a", "b"), nested=False, seeds=(0, 1))
    found = {
        Cell(frozenset({place}), place, seed): 0.5 + 0.2 * seed + 0.1 * (place == "b")
        for place in "ab"
        for seed in (0, 1)
    }
    (worth,) = design.worth({("plain", 1): found}).values()
    assert worth == pytest.approx({"a": 0.6, "b": 0.7})


def test_the_interval_for_a_new_place() -> None:
    """Two places, 0.6 and 0.8: squares 0.02 + 0.1², two degrees of freedom, t = 1.8856."""
    found = expect({"a": 0.6, "b": 0.8}, {}, NESTED)
    half = 1.885618 * math.sqrt(0.03 / 2 * 1.5)
    assert (found.mean, found.low) == pytest.approx((0.7, 0.7 - half), abs=1e-6)
    assert found.high == pytest.approx(0.7 + half, abs=1e-6)
    assert found.hardest == "a"
    assert expect({"a": 0.99, "b": 0.97}, {}, NESTED).high == 1.0
    assert expect({"a": 0.01, "b": 0.03}, {}, NESTED).low == 0.0
