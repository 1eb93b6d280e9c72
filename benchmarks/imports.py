"""Commands that only tell something start without torch."""

import re
import subprocess
import sys
from functools import partial

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio

COMMANDS = ("--help", "list methods")


def torch_modules(command: str, repeats: int) -> Measurement:
    """How many modules of torch the command imports; its duration is told, and is no goal."""
    unseen = ["-m", "unseen", *command.split()]
    report = _python("-X", "importtime", *unseen)
    number = len(imported(report, "torch"))
    pairs = alternate(
        clock(lambda: _python(*unseen)), clock(lambda: _python("-c", "pass")), repeats
    )
    slower = median_ratio(pairs).ratio
    return Measurement(number, remark=f"takes {slower:.0f} times as long as `python -c pass`")


def imported(report: str, package: str) -> list[str]:
    """Modules of a package in a report of `python -X importtime`."""
    modules = re.findall(r"^import time: .*\| +([\w.]+)$", report, flags=re.MULTILINE)
    return [name for name in modules if name.split(".")[0] == package]


def _python(*arguments: str) -> str:
    """What a Python process of its own writes to its error stream."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


FIGURES = [
    Figure(
        f"torch modules imported by `unseen {command}`",
        "== 0",
        "a count, no ratio",
        repeats=5,
        measure=partial(torch_modules, command),
    )
    for command in COMMANDS
]
