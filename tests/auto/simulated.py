"""A search without training: runs write records whose numbers are known, and take known times."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.sweeps.made_records import write_result

from unseen.automatic.budget import Clock
from unseen.automatic.search import Search
from unseen.automatic.subject import open_subject
from unseen.settings.experiment import Experiment
from unseen.sweeps.cost import ImageTimes
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan
from unseen.sweeps.workers import Outcome

PACE = ImageTimes(training=1e-3, evaluation=1e-4)
Worth = Callable[[str, Experiment, str], float]
"""What a candidate is worth on a domain."""


def worth(candidate: str, experiment: Experiment, domain: str) -> float:
    """Masks are ahead by five points, longer training by one; domains differ."""
    base = {"plain": 0.8, "blended": 0.7, "coloured": 0.65, "outlines": 0.5}[domain]
    longer = 0.01 * ((experiment.steps or 0) > 300)
    return base + 0.05 * (candidate == "masks") + longer - 0.03 * candidate.startswith("plain")


@dataclass
class Machine:
    """Trains in no time by the real clock; `slowness` times what was measured by its own."""

    home: Path
    seconds: float = 600.0
    worth: Worth = worth
    slowness: float = 1.0
    dies_after: int | None = None
    """Runs after which the process is killed."""
    stands_still: bool = False
    now: float = 0.0
    trained: list[str] = field(default_factory=list)

    def search(self, unseen: str = "", **settings: Any) -> Search:
        subject = open_subject("digits", unseen, settings)
        clock = Clock(self.seconds, now=lambda: self.now)
        quiet = Console(quiet=True)
        return Search(
            subject, self.home, clock, quiet, workers=2, measure=self.measure, train=self.train
        )

    def measure(self, experiment: Experiment) -> ImageTimes:
        return PACE

    def train(self, plan: Plan, *about: Any, together: bool) -> dict[Path, Outcome]:
        fresh = [run for run in plan.distinct if not run.folder.finished]
        for run in fresh:
            if len(self.trained) == self.dies_after:
                raise KeyboardInterrupt
            self.write(run)
        return {run.path: Outcome("finished") for run in plan.distinct}

    def write(self, run: PlannedRun) -> None:
        name, experiment = run.condition.method, run.experiment
        batch = experiment.images_per_domain * (4 - len(run.condition.unseen))
        seconds = self.slowness * run.steps * batch * PACE.training
        run.folder.path.mkdir(parents=True, exist_ok=True)
        run.folder.metrics.touch()
        write_result(experiment, run.folder, lambda e, domain: self.worth(name, e, domain))
        run.folder.timing.write_text(json.dumps({"seconds": seconds}))
        self.trained.append(run.path.name)
        if not self.stands_still:
            self.now += seconds / 2
