"""Weights & Biases, TensorBoard and MLflow: services that people already watch their runs with."""

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from unseen.optional import require
from unseen.reports.text import pipe_table
from unseen.reports.tracking import Subject
from unseen.settings.recipes import flattened

_LONGEST_WAIT = 60.0  # seconds, for a service that does not answer
_SECONDS_BETWEEN_WRITES = 15
_TAG = "unseen.run"
_DEFAULTS = {
    # MLflow's own values let a run wait four minutes for a server that does not answer
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_LONGEST_NAME = 250
_AT_ONCE = 100  # settings or numbers in one request


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
            init_timeout=_LONGEST_WAIT,
            finish_timeout=_LONGEST_WAIT,
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

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        columns, data = list(header), [list(row) for row in rows]
        self._run.log({name: self._wandb.Table(columns=columns, data=data)}, step=self._at)

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
        self._writer = SummaryWriter(str(folder), purge_step=0, flush_secs=_SECONDS_BETWEEN_WRITES)
        rows = [(name, str(value)) for name, value in flattened(subject.settings, "/").items()]
        self.table("settings", ("setting", "value"), rows)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._writer.add_text(name, pipe_table(header, rows))

    def figure(self, name: str, image: Image.Image) -> None:
        self._writer.add_image(name, np.asarray(image), dataformats="HWC")

    def close(self, finished: bool) -> None:
        self._writer.close()


class MlflowTracker:
    """Sends to the server that MLFLOW_TRACKING_URI names, else to the SQLite file `mlflow.db`."""

    packages = ("mlflow", "sqlalchemy", "alembic")

    def start(self, subject: Subject) -> None:
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = require("mlflow", extra="mlflow")
        for name in ("mlflow", "alembic"):  # they tell of every table that they make
            logging.getLogger(name).setLevel(logging.WARNING)
        self._held: dict[str, int] | None = None
        address = os.environ.get("MLFLOW_TRACKING_URI") or _local_file(subject)
        self._client = self._mlflow.MlflowClient(address)
        experiment = self._experiment(subject)
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{subject.identity}'")
        if found:
            self._run: str = found[0].info.run_id
            self._held = {}
            self._client.update_run(self._run, status="RUNNING")
        else:
            tags = {_TAG: subject.identity}
            made = self._client.create_run(experiment, tags=tags, run_name=subject.name)
            self._run = made.info.run_id
            self._send_settings(subject.settings)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        metric = self._mlflow.entities.Metric
        now = int(time.time() * 1000)
        named = {allowed_name(name): float(value) for name, value in values.items()}
        new = [
            metric(name, value, now, step)
            for name, value in named.items()
            if step > self._last_step(name)
        ]
        for start in range(0, len(new), _AT_ONCE):
            self._client.log_batch(self._run, metrics=new[start : start + _AT_ONCE])

    def table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._client.log_text(self._run, pipe_table(header, rows), f"{name}.md")

    def figure(self, name: str, image: Image.Image) -> None:
        self._client.log_image(self._run, image, artifact_file=f"{name}.png")

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")

    def _experiment(self, subject: Subject) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "unseen"
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        place = None
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            place = (subject.home / "mlflow").resolve().as_uri()
        try:
            return self._client.create_experiment(name, artifact_location=place)
        except self._mlflow.MlflowException:  # another run was quicker
            found = self._client.get_experiment_by_name(name)
            if found is None:
                raise
            return found.experiment_id

    def _send_settings(self, settings: Mapping[str, Any]) -> None:
        """Sends them once: MLflow lets nobody change them, and a resumed run may use other
        devices."""
        param = self._mlflow.entities.Param
        leaves = [
            param(allowed_name(name), str(value))
            for name, value in flattened(settings, "/").items()
        ]
        for start in range(0, len(leaves), _AT_ONCE):
            self._client.log_batch(self._run, params=leaves[start : start + _AT_ONCE])

    def _last_step(self, name: str) -> int:
        """Returns the last step that the run has of a number from before an interruption, or -1."""
        if self._held is None:
            return -1
        if name not in self._held:
            history = self._client.get_metric_history(self._run, name)
            self._held[name] = max((metric.step for metric in history), default=-1)
        return self._held[name]


def allowed_name(name: str) -> str:
    """Keeps letters, digits and a few signs, and nothing that looks like a path upwards."""
    parts = (re.sub(r"[^\w.\- ]", "_", part) for part in name.split("/"))
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)[:_LONGEST_NAME]


def _local_file(subject: Subject) -> str:
    subject.home.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{(subject.home / 'mlflow.db').resolve()}"
