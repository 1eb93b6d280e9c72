"""TensorBoard: event files below `tensorboard/`, a folder for each run."""

from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from unseen.optional import require
from unseen.reports.trackers.base import Subject, to_markdown
from unseen.settings.recipes import flattened

_SECONDS_BETWEEN_WRITES = 15


class TensorboardTracker:
    packages = ("tensorboard",)

    def start(self, subject: Subject) -> None:
        """Everything that older files of this run hold is declared void: it arrives again."""
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
        self._writer.add_text(name, to_markdown(header, rows))

    def figure(self, name: str, image: Image.Image) -> None:
        self._writer.add_image(name, np.asarray(image), dataformats="HWC")

    def close(self, finished: bool) -> None:
        self._writer.close()
