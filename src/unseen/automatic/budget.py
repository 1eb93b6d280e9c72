"""What fits into the time: seconds are measured, and steps and candidates are counted by them."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from unseen.automatic.candidates import Candidate
from unseen.automatic.choice import EVERYWHERE, Design

if TYPE_CHECKING:
    from unseen.sweeps.cost import ImageTimes

LENGTHS = (40, 75, 150, 200, 250, *range(300, 2501, 100))
"""Steps that a run may have."""
FIRST_ROUND = 300
"""The longest first round: more candidates are worth more than longer trainings of each."""
MOST_VIEWS, FEWEST_VIEWS = 8, 2
RUN_SECONDS = 1.0
"""What a run costs beside its steps and answers: it is opened, measured and written."""


class Clock:
    """The time that is left, over all calls of the same command, and the work that fits into it.

    `slowness` is how many times longer work took than its steps were measured to take.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._now, self._started = seconds, now, now()
        self.used_before = 0.0
        """In earlier calls."""
        self.workers, self.slowness = 1, 1.0

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
    images: int
    """Of all places with labels."""
    batch: int
    """Images of each place in a step."""
    views: int
    design: Design

    def run(self, candidate: Candidate, steps: int, left_out: int) -> float:
        """Returns the work of one run: its steps, two evaluations on a tenth of the images that
        train, and the measurement of what it left out."""
        pace, places = self.pace(candidate), len(self.design.places)
        trained = places - left_out
        answers = self.images / places * (left_out + 4 * 0.1 * trained)
        training = steps * self.batch * trained * pace.training
        return training + answers * pace.evaluation + RUN_SECONDS

    def everywhere(self, candidate: Candidate, steps: int) -> float:
        """Returns the work of all runs that a candidate is judged by."""
        places, needed = len(self.design.places), candidate.fewest_domains
        out = [len(o) for o in self.design.all_runs if places - len(o) >= needed]
        return len(self.design.seeds) * sum(self.run(candidate, steps, number) for number in out)

    def together(self, candidates: Iterable[Candidate], steps: int) -> float:
        return sum(self.everywhere(each, steps) for each in candidates)

    def store(self, candidate: Candidate) -> float:
        """Returns the work of storing what a candidate learns from."""
        if candidate.boundary is None:
            return 0.0
        versions = 1 + (self.views if candidate.views else 0)
        return versions * self.images * self.pace(candidate).storing

    def that_fit(
        self, candidates: Iterable[Candidate], steps: int, work: float, stored: Iterable[object]
    ) -> list[Candidate]:
        """Returns the candidates, in their turn, that fit together, with what has to be stored: of
        those whose method can train in the branch of all places."""
        taken, stores = list[Candidate](), set(stored)
        domains = len(self.design.places) - max(map(len, self.design.runs(EVERYWHERE)))
        for each in sorted(candidates, key=lambda each: each.turn):
            if (each.views and not self.views) or domains < each.fewest_domains:
                continue
            own = self.everywhere(each, steps)
            own += 0.0 if each.store in stores else self.store(each)
            if own <= work:
                work -= own
                taken.append(each)
                stores.add(each.store)
        return taken


def screen(candidates: Sequence[Candidate], costs: Costs, work: float) -> dict[str, Any] | None:
    """Returns what the first round compares, by the first way to use the time for which there is
    enough of it: with choices for each place without it and many augmented copies, then without
    the one and the other, then shorter; None where not even two candidates fit."""
    few = most = 0
    if copied := [each for each in candidates if each.views]:
        first = min(copied, key=lambda each: each.turn)
        most = int(0.15 * work / max(costs.images * costs.pace(first).storing, 1e-9))
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
            return screening(taken, steps, views, nested)
    return None


def screening(
    candidates: Iterable[Candidate], steps: int, views: int, nested: bool
) -> dict[str, Any]:
    """Returns what a first round of the last stages compares, and how, as plain data."""
    names = [each.name for each in candidates]
    return {"names": names, "steps": steps, "views": views, "nested": nested}


def longest_that_fits(
    seconds: Callable[[int], float], work: float, above: int, most: int = LENGTHS[-1]
) -> int | None:
    """Returns the longest training above a length that fits into the work; None where none does."""
    return max((n for n in LENGTHS if above < n <= most and seconds(n) <= work), default=None)
