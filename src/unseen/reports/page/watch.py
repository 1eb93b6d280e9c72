"""Keep a page fresh while runs go on."""

import time
from collections.abc import Callable
from pathlib import Path

from unseen.results.folder import find_runs


def watch(
    runs: Path,
    write: Callable[[], Path],
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    written: Callable[[Path], None] = lambda page: None,
) -> None:
    """Write the page now, and again whenever a record has changed; until it is interrupted."""
    before: object = None
    while True:
        now = _signature(runs)
        if now != before:
            written(write())
            before = now
        sleep(seconds)


def _signature(runs: Path) -> list[tuple[str, int, int]]:
    """Size and time of the files that a page is made of."""
    found = []
    for run in find_runs(runs):
        for path in (run.settings, run.metrics, run.result):
            try:
                about = path.stat()
            except OSError:  # not there yet
                continue
            found.append((str(path), about.st_size, about.st_mtime_ns))
    return found
