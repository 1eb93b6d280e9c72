"""`unseen serve` in a process of its own."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Running(NamedTuple):
    address: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextlib.contextmanager
def running(model: Path, *options: str) -> Iterator[Running]:
    """On a free port; ended with SIGTERM where a test has not ended it."""
    words = ["serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "unseen", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r" at (http://\S+)$", line.strip())
        assert found, line + process.stderr.read()
        yield Running(found[1], process)
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()
