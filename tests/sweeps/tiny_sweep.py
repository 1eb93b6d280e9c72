"""Tiny runs on the digits as jobs, methods that go wrong, and records compared."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.tiny import TINY

from unseen.results.folder import find_runs, run_name
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import load_experiment
from unseen.sweeps.train import PlanDisplay
from unseen.sweeps.workers import Job, Outcome
from unseen.training.display import Display, SilentDisplay

NOT_COMPARED = {"lock", "timing.json", "environment.json"}
RUNS = Path("runs")
PARTS = '''
"""Methods that go wrong."""

import os
import signal
from pathlib import Path

from unseen.methods.aggregate import Aggregate


class Failing(Aggregate):
    def loss(self, batch, progress):
        if progress.step == 3:
            raise ArithmeticError("this method is broken")
        return super().loss(batch, progress)


class DyingOnce(Aggregate):
    """Its process is killed in step 4, unless that has happened before."""

    def loss(self, batch, progress):
        mark = Path(os.environ["UNSEEN_MARK"])
        if progress.step == 4 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(batch, progress)
'''


def tiny_job(recipe: str = "digits/aggregate", until: int | None = None, **changes: Any) -> Job:
    """`a__b=value` is the setting `a.b=value`."""
    return job_of(tiny_experiment(recipe, **changes), until=until)


def tiny_experiment(recipe: str = "digits/aggregate", **changes: Any) -> Experiment:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment(recipe, TINY | dotted)


def job_of(*experiments: Experiment, runs: Path = RUNS, until: int | None = None) -> Job:
    settings = tuple(complete_settings(experiment) for experiment in experiments)
    return Job(settings, tuple(runs / run_name(experiment) for experiment in experiments), until)


def below(runs: Path, job: Job) -> Job:
    """The same runs in another folder."""
    return job._replace(folders=tuple(runs / path.name for path in job.folders))


class Listener(PlanDisplay):
    """Shows nothing, and remembers how runs went."""

    def __init__(self) -> None:
        self.outcomes: dict[Path, Outcome] = {}

    def begin(self, job: Job) -> Display:
        return SilentDisplay()

    def ended(self, path: Path, outcome: Outcome) -> None:
        self.outcomes[path] = outcome

    def under_way(self, jobs: Collection[Job], status: str) -> None:
        pass


def assert_same_records(found: Path, expected: Path) -> None:
    """The same runs with the same bytes, but for what tells the time and the place."""
    names = [folder.path.name for folder in find_runs(expected)]
    assert [folder.path.name for folder in find_runs(found)] == names != []
    for name in names:
        assert_same_run(found / name, expected / name)


def assert_same_run(found: Path, expected: Path) -> None:
    files = _files(expected)
    assert "result.json" in map(str, files)
    assert _files(found) == files
    for file in files:
        if file.name not in NOT_COMPARED:
            assert (found / file).read_bytes() == (expected / file).read_bytes(), file


def _files(folder: Path) -> set[Path]:
    """All but a checkpoint, which a kill right after the result leaves behind."""
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return files - {Path("checkpoint.safetensors")}
