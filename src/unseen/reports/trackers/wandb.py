"""Weights & Biases: online where there is a key, else offline files below `wandb/`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from unseen.optional import require
from unseen.reports.trackers.base import Subject

_LONGEST_WAIT = 60.0  # seconds, for a service that does not answer


class WandbTracker:
    packages = ("wandb",)

    def start(self, subject: Subject) -> None:
        """Steps before the one that an interrupted run is resumed at are there already."""
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
