"""A worker does not outlive the command that started it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("platform", ["linux", "another"])
def test_a_worker_ends_with_its_command(platform: str) -> None:
    """By the kernel on Linux, by the end of a pipe elsewhere; and it is light until it has work."""
    words = [sys.executable, "-m", "tests.sweeps.orphan", platform]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        number = command.stdout.readline().strip()
        assert number.isdigit(), "the worker did not start, or loaded torch before it had work"
        worker = Path("/proc") / number
        assert (worker / "cmdline").read_text()
        command.kill()
        while worker.exists():  # for an hour, if it did not end with its command
            time.sleep(0.02)
