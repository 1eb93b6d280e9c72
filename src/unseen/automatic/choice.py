"""The choice among candidates, and what may be expected at a new place. Numbers only, no torch.

A *branch* leaves out some places altogether: the choice for all places (nothing left out), and for
each place the choice that is made without it. No number that was measured on a place, and no run
that trained on it, has a part in the branch that leaves it out.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import Any, NamedTuple

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
Worth = Mapping[Row, Mapping[str, float]]
"""What rows are worth on each place that they are compared by, between 0 and 1."""


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

    def worth(
        self, scores: Mapping[Row, Mapping[Cell, float]], branch: Places = EVERYWHERE
    ) -> dict[Row, dict[str, float]]:
        """Returns what rows are worth in a branch on each place that it does not leave out: means
        over runs and seeds. Rows of which one of these runs is missing are not among them."""
        wanted = {
            place: [Cell(out, place, n) for out in self.counts(branch, place) for n in self.seeds]
            for place in self.places
            if place not in branch
        }
        return {
            row: {place: fmean(cells[each] for each in own) for place, own in wanted.items()}
            for row, cells in scores.items()
            if all(each in cells for own in wanted.values() for each in own)
        }


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


def choose(worth: Worth, simplest_first: Sequence[str]) -> Choice | None:
    """Returns the simplest of the named candidates that is not worse than the best by more than one
    standard error of their paired difference over the places, nor by more than a point; None where
    there is none. Each counts with its longest training, and of equally good ones the simplest
    counts as best."""
    longest = {row[0]: row for row in sorted(worth, key=lambda row: row[1])}
    order = [longest[name] for name in simplest_first if name in longest]
    if not order:
        return None
    best = max(order, key=lambda row: fmean(worth[row].values()))
    for row in order:
        differences = [worth[best][place] - value for place, value in worth[row].items()]
        behind, noise = fmean(differences), standard_error(differences)
        if behind <= min(noise, WORTH):
            return Choice(row, fmean(worth[row].values()), best, behind, noise)
    raise AssertionError("the best row is not worse than itself")


def standard_error(values: Sequence[float]) -> float:
    """Returns that of the mean; 0 for a single value, which says nothing about noise."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


NESTED, SAME_RUNS = "nested", "chosen by the same runs"
LEVEL = 0.8
USUAL_SPREAD = 0.10
"""The standard deviation between places that counts as one more place: few places say little about
how different places are."""


class Expectation(NamedTuple):
    """What to expect at a new place, from the places that were left out."""

    mean: float
    low: float
    high: float
    by_place: Mapping[str, float]
    rows: Mapping[str, Row]
    """What was chosen for each place."""
    kind: str

    @property
    def hardest(self) -> str:
        return min(self.by_place, key=lambda place: self.by_place[place])

    def as_json(self) -> dict[str, Any]:
        return self._asdict() | {"hardest": self.hardest}


def expect(by_place: Mapping[str, float], rows: Mapping[str, Row], kind: str) -> Expectation:
    """Returns mean and interval for a place that nobody has seen: Student's t, of which the scale
    is the spread between the places, with a usual one counting as one place more."""
    from scipy.special import stdtrit

    n, mean = len(by_place), fmean(by_place.values())
    squares = sum((value - mean) ** 2 for value in by_place.values()) + USUAL_SPREAD**2
    scale = math.sqrt(squares / n * (1 + 1 / n))
    half = float(stdtrit(n, (1 + LEVEL) / 2)) * scale
    return Expectation(mean, max(0.0, mean - half), min(1.0, mean + half), by_place, rows, kind)
