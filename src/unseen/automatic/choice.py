"""The choice among candidates, and what may be expected at a new place. Numbers only, no torch.

A *branch* leaves out some places altogether: the choice for all places (nothing left out), and for
each place the choice that is made without it. No number that was measured on a place, and no run
that trained on it, has a part in the branch that leaves it out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

Places = frozenset[str]
EVERYWHERE: Places = frozenset()
"""The branch of the model that is handed over: all places with labels have a say."""
FEWEST_FOR_PAIRS = 4
"""Places from which on runs that leave out two of them are all that choices need."""


class Cell(NamedTuple):
    """A measurement: which places the run left out, on which of them it is measured, its seed."""

    left_out: Places
    place: str
    seed: int


Row = tuple[str, int]
"""A candidate by its name, and the steps that it trained."""
Scores = Mapping[Row, Mapping[Cell, float]]
"""What each run was worth on a place that it had left out, between 0 and 1."""


class Design(NamedTuple):
    """Which runs each candidate is judged by.

    With four places or more, every pair of them is left out: a run says what a candidate is worth
    on one place to the branch that leaves out the other one, and both numbers to the branch of all
    places. With three places pairs leave a single one to train on, so that branch has runs of its
    own, which leave out one place; without nested choices there are no others.
    """

    places: tuple[str, ...]
    nested: bool
    seeds: tuple[int, ...] = (0,)

    @property
    def paired(self) -> bool:
        """Whether runs that leave out pairs serve all branches."""
        return self.nested and len(self.places) >= FEWEST_FOR_PAIRS

    @property
    def branches(self) -> list[Places]:
        """That of the model first, then those of the places."""
        return [EVERYWHERE, *(frozenset({place}) for place in self.places if self.nested)]

    def counts(self, branch: Places, place: str) -> list[Places]:
        """Returns what the runs leave out whose results on a place count in a branch."""
        if branch == EVERYWHERE and self.paired:
            return [frozenset({place, other}) for other in self.places if other != place]
        return [branch | {place}]

    def runs(self, branch: Places) -> list[Places]:
        """Returns what the runs of a branch leave out, each once."""
        others = [place for place in self.places if place not in branch]
        return list(dict.fromkeys(out for place in others for out in self.counts(branch, place)))

    @property
    def all_runs(self) -> list[Places]:
        """What the runs of a candidate leave out that is judged in all branches."""
        if self.paired:
            return [frozenset(pair) for pair in combinations(self.places, 2)]
        return list(dict.fromkeys(out for branch in self.branches for out in self.runs(branch)))

    def scores(self, cells: Mapping[Cell, float], branch: Places) -> dict[str, float]:
        """Returns what a candidate is worth in a branch on each place that it does not leave out:
        means over runs and seeds; nothing unless all of them are there."""
        found: dict[str, float] = {}
        for place in self.places:
            if place not in branch:
                counted = self.counts(branch, place)
                wanted = [Cell(out, place, seed) for out in counted for seed in self.seeds]
                if any(cell not in cells for cell in wanted):
                    return {}
                found[place] = fmean(cells[cell] for cell in wanted)
        return found


def longest(rows: Iterable[Row]) -> list[Row]:
    """Returns each candidate with its longest training: how long is no matter of simplicity."""
    steps: dict[str, int] = {}
    for name, length in rows:
        steps[name] = max(length, steps.get(name, 0))
    return list(steps.items())


WORTH = 0.01
"""How much a simpler candidate may be behind at most. One standard error over a few places can be
many points, because places differ in how much a candidate helps."""


class Choice(NamedTuple):
    """The row that is chosen, and why."""

    row: Row
    mean: float
    best: Row
    behind: float
    """How far the chosen one is behind the best."""
    noise: float
    """One standard error of that difference over the places."""


def choose(scores: Mapping[Row, Mapping[str, float]], simplest_first: Sequence[str]) -> Choice:
    """Returns the simplest row that is not worse than the best by more than one standard error of
    their paired difference over the places, nor by more than a point. Of equally good ones the
    simplest counts as best."""
    order = sorted(scores, key=lambda row: simplest_first.index(row[0]))
    best = max(order, key=lambda row: fmean(scores[row].values()))
    for row in order:
        differences = [scores[best][place] - value for place, value in scores[row].items()]
        behind, noise = fmean(differences), standard_error(differences)
        if behind <= min(noise, WORTH):
            mean = fmean(scores[row].values())
            return Choice(row, mean, best, behind, noise)
    raise AssertionError("the best row is not worse than itself")


def standard_error(values: Sequence[float]) -> float:
    """Returns that of the mean; 0 for a single value, which says nothing about noise."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def choose_in(
    design: Design, branch: Places, scores: Scores, simplest_first: Sequence[str]
) -> Choice | None:
    """Returns the choice of a branch among the candidates named; each counts with the longest
    training of which all runs are there."""
    found = {
        row: values
        for row, cells in scores.items()
        if row[0] in simplest_first and (values := design.scores(cells, branch))
    }
    kept = longest(found)
    return choose({row: found[row] for row in kept}, simplest_first) if kept else None


def best_rows(
    design: Design, branch: Places, scores: Scores, rows: Sequence[Row], number: int
) -> list[Row]:
    """Returns so many of the rows with the highest means in a branch, in the order given."""
    means = {
        row: fmean(values.values())
        for row in rows
        if (values := design.scores(scores.get(row, {}), branch))
    }
    best = sorted(means, key=lambda row: -means[row])[:number]
    return [row for row in rows if row in best]


def choose_by_validation(validation: Scores, place: str) -> Row | None:
    """Returns the row with the highest mean on held-out images of the places that trained, over all
    runs that left out a place: the choice by a random split, which says nothing about new places.
    """
    means: dict[Row, float] = {}
    for row, cells in validation.items():
        own = [value for cell, value in cells.items() if cell.place == place]
        if own:
            means[row] = fmean(own)
    return max(means, key=lambda row: means[row]) if means else None


Kind = Literal["nested", "chosen by the same runs"]


class Expectation(NamedTuple):
    """What to expect at a new place, from the places that were left out."""

    mean: float
    low: float
    high: float
    by_place: Mapping[str, float]
    rows: Mapping[str, Row]
    """What was chosen for each place."""
    kind: Kind

    @property
    def hardest(self) -> str:
        return min(self.by_place, key=lambda place: self.by_place[place])

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"hardest": self.hardest}


LEVEL = 0.8
USUAL_SPREAD = 0.10
"""The standard deviation between places that counts as one more place: few places say little about
how different places are."""


def expect(by_place: Mapping[str, float], rows: Mapping[str, Row], kind: Kind) -> Expectation:
    """Returns mean and interval for a place that nobody has seen: Student's t, of which the scale
    is the spread between the places, with a usual one counting as one place more."""
    from scipy.special import stdtrit

    n, mean = len(by_place), fmean(by_place.values())
    squares = sum((value - mean) ** 2 for value in by_place.values()) + USUAL_SPREAD**2
    scale = math.sqrt(squares / n * (1 + 1 / n))
    half = float(stdtrit(n, (1 + LEVEL) / 2)) * scale
    return Expectation(mean, max(0.0, mean - half), min(1.0, mean + half), by_place, rows, kind)


def honest(
    design: Design, scores: Scores, choices: Mapping[str, Row], kind: Kind
) -> Expectation | None:
    """Returns the expectation from what was chosen for each place; None until each of these runs,
    which left out that place alone, is there."""
    by_place: dict[str, float] = {}
    for place, row in choices.items():
        cells = [Cell(frozenset({place}), place, seed) for seed in design.seeds]
        if any(cell not in scores[row] for cell in cells):
            return None
        by_place[place] = fmean(scores[row][cell] for cell in cells)
    return expect(by_place, choices, kind) if by_place else None
