"""What fits into the time: seconds are measured, and steps and candidates are counted by them."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from unseen.automatic.candidates import Candidate
from unseen.automatic.choice import EVERYWHERE, Design

if TYPE_CHECKING:
    from unseen.training.timing import ImageTimes

LENGTHS = (40, 75, 150, 200, 250, *range(300, 2501, 100))
"""Steps that a run may have."""
FIRST_ROUND = 300
"""The longest first round: more candidates are worth more than longer trainings of each."""
MOST_VIEWS, FEWEST_VIEWS = 8, 2
RUN_SECONDS = 1.0
"""What a run costs beside its steps and answers: it is opened, measured and written."""


class Size(NamedTuple):
    """The numbers that decide how much work a run is."""

    images: int
    """Of all places with labels."""
    places: int
    batch: int
    """Images of each place in a step."""


class Clock:
    """The time that is left, over all calls of the same command, and the work that fits into it.

    `slowness` is how many times longer work took than its steps were measured to take.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._now, self._started = seconds, now, now()
        self.used_before = 0.0
        """In earlier calls."""
        self.workers = 1
        self.slowness = 1.0

    @property
    def used(self) -> float:
        return self.used_before + self._now() - self._started

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.used)

    def work(self, share: float = 1.0) -> float:
        """Returns the seconds of work, as they were measured, that a share of the time that is left
        has room for."""
        return share * self.left * self.workers / self.slowness

    def learn(self, planned: float, seconds: float) -> None:
        """Corrects the measured times by what runs really took."""
        if planned > 0 and seconds > 0:
            self.slowness = min(5.0, max(0.2, seconds / planned))


class Costs(NamedTuple):
    """What candidates cost, in seconds of work."""

    pace: Callable[[Candidate], "ImageTimes"]
    size: Size
    views: int
    design: Design

    def run(self, candidate: Candidate, steps: int, left_out: int) -> float:
        """Returns the work of one run: its steps, two evaluations on a tenth of the images that
        train, and the measurement of what it left out."""
        pace, size = self.pace(candidate), self.size
        trained = size.places - left_out
        answers = size.images / size.places * (left_out + 4 * 0.1 * trained)
        training = steps * size.batch * trained * pace.training
        return training + answers * pace.evaluation + RUN_SECONDS

    def everywhere(self, candidate: Candidate, steps: int) -> float:
        """Returns the work of all runs that a candidate is judged by."""
        needed = candidate.fewest_domains
        out = [len(o) for o in self.design.all_runs if self.size.places - len(o) >= needed]
        return len(self.design.seeds) * sum(self.run(candidate, steps, number) for number in out)

    def together(self, candidates: Iterable[Candidate], steps: int) -> float:
        return sum(self.everywhere(each, steps) for each in candidates)

    def _comparable(self, candidate: Candidate) -> bool:
        """Whether the runs of the branch of all places leave the method enough places."""
        left_out = max(map(len, self.design.runs(EVERYWHERE)))
        return self.size.places - left_out >= candidate.fewest_domains

    def store(self, candidate: Candidate) -> float:
        """Returns the work of storing what a candidate learns from."""
        if candidate.boundary is None:
            return 0.0
        versions = 1 + (self.views if candidate.views else 0)
        return versions * self.size.images * self.pace(candidate).storing

    def that_fit(
        self, candidates: Iterable[Candidate], steps: int, work: float, stored: Iterable[object]
    ) -> list[Candidate]:
        """Returns the candidates, in their turn, that fit together, with what has to be stored."""
        taken: list[Candidate] = []
        stores = set(stored)
        for each in sorted(candidates, key=lambda each: each.turn):
            if (each.views and not self.views) or not self._comparable(each):
                continue
            own = self.everywhere(each, steps)
            own += 0.0 if each.store in stores else self.store(each)
            if own <= work:
                work -= own
                taken.append(each)
                stores.add(each.store)
        return taken


class Screening(NamedTuple):
    """What the first round of the last stages compares, and how."""

    names: list[str]
    steps: int
    views: int
    nested: bool


def screen(candidates: Sequence[Candidate], costs: Costs, work: float) -> Screening | None:
    """Returns what the first round compares, by the first way to use the time for which there is
    enough of it: with choices for each place without it and many augmented copies, then without
    the one and the other, then shorter; None where not even two candidates fit."""
    few = most = 0
    if copied := [each for each in candidates if each.views]:
        first = min(copied, key=lambda each: each.turn)
        most = int(0.15 * work / max(costs.size.images * costs.pace(first).storing, 1e-9))
        few, most = FEWEST_VIEWS, max(FEWEST_VIEWS, min(MOST_VIEWS, most))
    # nested choices; copies; steps; candidates that have to fit; share of the time for all that
    ways = [(True, most, 150, 4, 0.35), (True, few, 150, 3, 0.55)]
    ways += [(False, few, 150, 2, 0.6), (False, few, 75, 2, 0.7)]
    ways += [(False, 0, steps, 2, 0.7) for steps in (150, 75, 40)]
    for nested, views, shortest, fewest, share in ways:
        if nested and not costs.design.nested:
            continue
        own = costs._replace(design=costs.design._replace(nested=nested), views=views)
        taken = own.that_fit(candidates, shortest, share * work, ())
        enough = len(taken) >= min(fewest, len(candidates))
        if enough and any(each.views for each in taken) >= (views > 0):
            left = max(0.45, share) * work
            left -= sum(map(own.store, {each.store: each for each in taken}.values()))
            seconds = partial(own.together, taken)
            steps = longest_that_fits(seconds, left, shortest, FIRST_ROUND) or shortest
            return Screening([each.name for each in taken], steps, views, nested)
    return None


def longest_that_fits(
    seconds: Callable[[int], float], work: float, above: int, most: int = LENGTHS[-1]
) -> int | None:
    """Returns the longest training above a length that fits into the work; None where none does."""
    return max((n for n in LENGTHS if above < n <= most and seconds(n) <= work), default=None)
