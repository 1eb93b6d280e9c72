"""`unseen` that is stopped at an exact moment: `python -m tests.stopping WORDS`.

STOP has one line for each stop, "SIGNAL NUMBER PATTERN": before its NUMBERth operation on a file
that the regular expression PATTERN finds ("os.rename from to"), the command gets the signal.
Nothing depends on how quick a machine is: not when the signal comes, nor what was written before.

Worker processes of the command import this module as well; each counts its own operations, and
sends the signal to the command. With "worker" as a fourth word, it is the worker that gets it, once
in all (the file STOPPED remembers it).
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

OPERATIONS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir"}
IS_WORKER = __name__ == "__mp_main__"


def start(words: list[str], *stops: str, **environment: str) -> subprocess.Popen[str]:
    """The command in a process of its own; `stops` as above."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stopping", *words],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"STOP": "\n".join(stops)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _watch_for(stop: str) -> None:
    name, number, pattern, *worker = stop.split()
    left = int(number)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in OPERATIONS and re.search(pattern, " ".join(map(str, (event, *arguments)))):
            left -= 1
            if left == 0:
                _send(signal.Signals[name], bool(worker))

    if IS_WORKER or not worker:
        sys.addaudithook(watch)


def _send(number: signal.Signals, to_worker: bool) -> None:
    if not to_worker:
        os.kill(os.getppid() if IS_WORKER else os.getpid(), number)
        return
    mark = Path(os.environ["STOPPED"])
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), number)


if __name__ in {"__main__", "__mp_main__"}:
    for line in os.environ.get("STOP", "").splitlines():
        _watch_for(line)

if __name__ == "__main__":
    from unseen.cli.main import main

    main()
