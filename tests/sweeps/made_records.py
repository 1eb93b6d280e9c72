"""Sweeps without training: an executor that writes the records of runs whose numbers are known."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.made_results import made_result

from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import build_experiment
from unseen.sweeps.plan import Plan, plan_sweep
from unseen.sweeps.sweep_file import load_sweep, make_comparison
from unseen.sweeps.workers import Job, Outcome

DOMAINS = ("plain", "blended", "coloured", "outlines")
TINY: dict[str, Any] = {
    "settings.steps": 6,
    "settings.evaluate_every": 2,
    "settings.checkpoint_every": 2,
    "settings.images_per_domain": 2,
    "settings.network.image_size": 16,
    "settings.devices.accelerator": "cpu",
    "search": "optimizer.lr",
}
Score = Callable[[Experiment, int], float]
Unseen = Callable[[Experiment, str], float]


def small_plan(runs: Path = Path("runs"), **changes: Any) -> Plan:
    """The shipped sweep on digits with aggregate alone, and tiny runs."""
    sweep = load_sweep("digits", TINY | {"methods": "aggregate"} | changes)
    return plan_sweep(sweep, "digits", runs)


def comparison_plan(*words: Any, runs: Path = Path("runs"), **named: Any) -> Plan:
    """The plan of a comparison; arguments are those of `make_comparison`."""
    return plan_sweep(make_comparison(*words, **named), "", runs)


class Pretender:
    """Writes what a run would have written, and remembers what it was asked for."""

    def __init__(self, score: Score, unseen: Unseen) -> None:
        self.score, self.unseen = score, unseen
        self.asked: list[list[tuple[str, int | None]]] = []
        self.broken: set[str] = set()
        """Runs, by folder name, that never get anywhere."""

    def __call__(self, jobs: Iterable[Job]) -> dict[Path, Outcome]:
        singles = [single for job in jobs for single in job.one_by_one]
        self.asked.append([(job.folders[0].name, job.until) for job in singles])
        return {job.folders[0]: self._pretend(job) for job in singles}

    def _pretend(self, job: Job) -> Outcome:
        experiment, folder = build_experiment(job.settings[0]), RunFolder(job.folders[0])
        if folder.path.name in self.broken:
            return Outcome("failed", "it broke down")
        write_metrics(experiment, folder, self.score, job.until or experiment.steps or 0)
        if job.until is not None:
            return Outcome("paused")
        write_result(experiment, folder, self.unseen)
        return Outcome("finished")


def write_metrics(experiment: Experiment, folder: RunFolder, score: Score, until: int) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    training = [domain for domain in DOMAINS if domain not in experiment.data.unseen_domain]
    lines = []
    for step in range(1, until + 1):
        lines.append({"step": step, "loss": 1.0})
        if step % experiment.evaluate_every == 0 or step == experiment.steps:
            validation = dict.fromkeys(training, score(experiment, step))
            lines.append({"step": step, "validation": validation})
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_result(experiment: Experiment, folder: RunFolder, unseen: Unseen) -> None:
    training = [domain for domain in DOMAINS if domain not in experiment.data.unseen_domain]
    held_out = experiment.data.unseen_domain
    result = made_result(
        experiment.method.name,
        {domain: unseen(experiment, domain) for domain in held_out},
        dict.fromkeys(training, 0.9),
        experiment.seed,
        run=folder.path.name,
        dataset=experiment.data.name,
        backbone=experiment.network.name,
        steps=experiment.steps,
        selection=experiment.selection,
    )
    folder.timing.write_text(json.dumps({"seconds": 12.0}))
    folder.write_result(result)
