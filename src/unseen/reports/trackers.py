"""Records sent to services that people already watch their runs with: Weights & Biases, TensorBoard
and MLflow, a small class for each.

Any call of a tracker may raise: it then gets nothing more, and training continues. After `start`,
all numbers of the run so far arrive again, in order: a tracker that still has them from before an
interruption leaves them out. `packages` have to be installed.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from unseen.errors import SettingsError
from unseen.optional import require
from unseen.reports.figures.figure import to_picture
from unseen.reports.figures.grids import MOST_CLASSES, confusion_map
from unseen.reports.formats import result_table
from unseen.reports.tables import Table
from unseen.reports.text import pipe_table
from unseen.results.folder import safe_name
from unseen.results.result import RunResult
from unseen.settings import catalog
from unseen.settings.experiment import METRICS, as_list
from unseen.settings.recipes import flattened

_LONGEST_MESSAGE, _LONGEST_NAME = 200, 250
_CELL, _LABELS, _FEWEST = 34, 110, 8  # pixels; and the number of columns that a title needs
_TAG = "unseen.run"
_DEFAULTS = {
    # MLflow's own values let a run wait four minutes for a server that does not answer
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_AT_ONCE = 100  # settings or numbers in one request

Texts = Sequence[str]


class Subject(NamedTuple):
    """What a tracker files things under. The same identity continues what was filed before."""

    name: str
    identity: str
    settings: Mapping[str, Any]
    home: Path
    """The folder of all runs: trackers keep their local files there, beside the runs."""


def choose_trackers(names: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names given to --log, each known and installed, before anything is trained."""
    chosen = tuple(dict.fromkeys(as_list(names)))
    for name in chosen:
        needed = (*catalog.load("tracker", name).packages, "typst")  # draws confusion matrices
        missing = [package for package in needed if not find_spec(package)]
        if missing:
            raise SettingsError(
                f"--log {name} needs the package '{missing[0]}', which is not installed: "
                f"pip install 'unseen[{name}]'"
            )
    return chosen


class Trackers:
    """Sends to all trackers. Nothing here raises what a tracker raises: one that fails is left
    alone, and the record on disk is what counts."""

    def __init__(self, names: Sequence[str], subject: Subject, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._alive = {name: catalog.load("tracker", name)() for name in names}
        self._each("start", subject)

    def record(self, record: Mapping[str, Any]) -> None:
        """Send a line of metrics.jsonl."""
        self._each("numbers", record["step"], named_numbers(record))

    def result(self, result: RunResult) -> None:
        """Send final numbers, a table and a confusion matrix of each unseen domain."""
        header, rows = result_table(result.under(result.selection).views, tuple(METRICS))
        self._each("numbers", result.steps, final_numbers(result))
        self._each("table", "result", header, rows)
        for domain, each in result.view(result.selection, "out_of_domain").items():
            names = result.names_of(each.confusion)
            width = _LABELS + _CELL * min(max(len(names), _FEWEST), MOST_CLASSES)
            drawing = confusion_map("", each.confusion, names, counts=True, width=width)
            self._each("figure", f"confusion-{safe_name(domain)}", partial(to_picture, drawing))

    def table(self, table: Table) -> None:
        """Send one of the tables of a comparison."""
        header, *rows = table.texts
        self._each("table", table.view, header, rows)

    def close(self, finished: bool) -> None:
        self._each("close", finished)

    def _each(self, call: str, *values: Any) -> None:
        for name, tracker in list(self._alive.items()):
            try:
                made = (each() if isinstance(each, partial) else each for each in values)
                getattr(tracker, call)(*made)
            except Exception as error:
                del self._alive[name]
                said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
                self._warn(
                    f"{catalog.TRACKERS[name].description} failed ({type(error).__name__}: {said}) "
                    "and gets nothing more from this run; training continues, and the run's folder "
                    "has everything"
                )
                with suppress(Exception):
                    tracker.close(False)


def named_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Returns a line of metrics.jsonl as a tracker shows it; what is not a number stays behind."""
    together = {
        name if isinstance(value, Mapping) else f"train/{name}": value
        for name, value in record.items()
        if name != "step"
    }
    return {
        name: value
        for name, value in flattened(together, "/").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def final_numbers(result: RunResult) -> dict[str, float]:
    """Returns, by view and domain under the run's own selection rule, calibration error, accuracy,
    and the metric that its checkpoint was chosen by."""
    found: dict[str, float] = {}
    for view, domains in result.under(result.selection).views.items():
        place = f"final/{view}"
        for domain, each in domains.items():
            found[f"{place}/{domain}/ece"] = each.calibration_error
            if each.calibrated_error is not None:
                found[f"{place}/{domain}/ece after scaling"] = each.calibrated_error
        for metric in dict.fromkeys(("accuracy", result.metric)) if domains else ():
            values = {domain: each.measures[metric] for domain, each in domains.items()}
            found |= {f"{place}/{name}/{METRICS[metric]}": value for name, value in values.items()}
            found[f"{place}/mean {METRICS[metric]}"] = fmean(values.values())
            found[f"{place}/worst {METRICS[metric]}"] = min(values.values())
    return found


class WandbTracker:
    """Sends online where there is a key, and else keeps offline files below `wandb/`."""

    packages = ("wandb",)

    def start(self, subject: Subject) -> None:
        """Opens the run, which after an interruption holds its first steps already."""
        self._wandb: Any = require("wandb", extra="wandb")
        decided = os.environ.get("WANDB_MODE") or self._wandb.login(prompt=False)
        settings = self._wandb.Settings(
            silent=True,  # its own lines would tear the progress bar
            console="off",
            reinit="create_new",
            init_timeout=60.0,  # seconds, for a service that does not answer
            finish_timeout=60.0,
            finish_timeout_raises=True,
        )
        subject.home.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "unseen",
            id=subject.identity,
            name=subject.name,
            dir=str(subject.home),
            config=dict(subject.settings),
            mode=None if decided else "offline",
            resume="allow",
            settings=settings,
        )
        self._held = self._at = self._run.step

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self._held:
            self._at = step
            self._run.log(dict(values), step=step)

    def table(self, name: str, header: Texts, rows: Sequence[Texts]) -> None:
        table = self._wandb.Table(columns=list(header), data=list(map(list, rows)))
        self._run.log({name: table}, step=self._at)

    def figure(self, name: str, image: Image.Image) -> None:
        self._run.log({name: self._wandb.Image(image)}, step=self._at)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class TensorboardTracker:
    """Writes event files below `tensorboard/`, a folder for each run."""

    packages = ("tensorboard",)

    def start(self, subject: Subject) -> None:
        """Opens a file; what older files of this run hold is declared void, as it arrives again."""
        require("tensorboard", extra="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        folder = subject.home / "tensorboard" / subject.name
        self._writer = SummaryWriter(str(folder), purge_step=0, flush_secs=15)
        rows = [(name, str(value)) for name, value in flattened(subject.settings, "/").items()]
        self.table("settings", ("setting", "value"), rows)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def table(self, name: str, header: Texts, rows: Sequence[Texts]) -> None:
        self._writer.add_text(name, pipe_table(header, rows))

    def figure(self, name: str, image: Image.Image) -> None:
        self._writer.add_image(name, np.asarray(image), dataformats="HWC")

    def close(self, finished: bool) -> None:
        self._writer.close()


class MlflowTracker:
    """Sends to the server that MLFLOW_TRACKING_URI names, else to the SQLite file `mlflow.db`."""

    packages = ("mlflow", "sqlalchemy", "alembic")

    def start(self, subject: Subject) -> None:
        """Opens the run; its settings are sent once: MLflow lets nobody change them, and a resumed
        run may use other devices."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = require("mlflow", extra="mlflow")
        for name in ("mlflow", "alembic"):  # they tell of every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        address = os.environ.get("MLFLOW_TRACKING_URI")
        place = None if address else (subject.home / "mlflow").resolve().as_uri()
        if address is None:
            subject.home.mkdir(parents=True, exist_ok=True)
            address = f"sqlite:///{(subject.home / 'mlflow.db').resolve().as_posix()}"
        self._client = self._mlflow.MlflowClient(address)
        experiment = self._experiment(place)
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{subject.identity}'")
        self._last_step: Callable[[str], int] = cache(self._last_held) if found else lambda _: -1
        if found:
            self._run: str = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        about = {"tags": {_TAG: subject.identity}, "run_name": subject.name}
        self._run = self._client.create_run(experiment, **about).info.run_id
        settings, param = flattened(subject.settings, "/"), self._mlflow.entities.Param
        self._send("params", [param(allowed_name(k), str(v)) for k, v in settings.items()])

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        metric, now = self._mlflow.entities.Metric, int(time.time() * 1000)
        named = {allowed_name(name): float(value) for name, value in values.items()}
        new = [(name, value) for name, value in named.items() if step > self._last_step(name)]
        self._send("metrics", [metric(*each, now, step) for each in new])

    def table(self, name: str, header: Texts, rows: Sequence[Texts]) -> None:
        self._client.log_text(self._run, pipe_table(header, rows), f"{name}.md")

    def figure(self, name: str, image: Image.Image) -> None:
        self._client.log_image(self._run, image, artifact_file=f"{name}.png")

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")

    def _experiment(self, place: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unseen"
        found = self._client.get_experiment_by_name(name)
        try:
            if found is None:
                return self._client.create_experiment(name, artifact_location=place)
        except self._mlflow.MlflowException:  # another run was quicker
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
        return found.experiment_id

    def _send(self, kind: str, items: list[Any]) -> None:
        for start in range(0, len(items), _AT_ONCE):
            self._client.log_batch(self._run, **{kind: items[start : start + _AT_ONCE]})

    def _last_held(self, name: str) -> int:
        """Returns the last step that the run has of a number from before an interruption, or -1."""
        history = self._client.get_metric_history(self._run, name)
        return max((metric.step for metric in history), default=-1)


def allowed_name(name: str) -> str:
    """Keeps letters, digits and a few signs, and nothing that looks like a path upwards."""
    parts = (re.sub(r"[^\w.\- ]", "_", part) for part in name.split("/"))
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)[:_LONGEST_NAME]
