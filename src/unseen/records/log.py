"""metrics.jsonl: one record a line, appended as a run goes on. No torch."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError


def read_log(path: Path) -> list[dict[str, Any]]:
    """All records up to now; a line that a crash cut short is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines[:-1]]
    except json.JSONDecodeError as error:
        raise UnseenError(f"{path} is damaged: {error}") from error


class MetricsLog:
    """Appends records; `size` at a checkpoint lets a resumed run cut off what came after it."""

    listener: Callable[[dict[str, Any]], None] | None = None
    """Gets every record once it is written."""

    def __init__(self, path: Path, size: int) -> None:
        path.touch()
        if path.stat().st_size < size:
            raise UnseenError(
                f"{path} is shorter than at the run's last checkpoint; put it back, or remove "
                f"{path.parent} to start again"
            )
        os.truncate(path, size)
        self._file = path.open("ab")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        if self.listener is not None:
            self.listener(record)

    def sync(self) -> int:
        """Make sure that everything is on disk; the number of bytes there are."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
