"""A driver with a worker that does nothing: `python -m tests.sweeps.orphan`.

It writes the worker's process number, and waits to be killed.
"""

import multiprocessing
import os
import sys
import time

from unseen.sweeps.workers import end_with_the_command


def idle() -> None:
    end_with_the_command()
    assert "torch" not in sys.modules
    print(os.getpid(), flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=idle).start()
    time.sleep(3600)
