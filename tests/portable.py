"""The suite as other machines would run it: `python -m tests.portable [words for pytest]`.

Sums are rounded differently by each kind of processor, and a busy machine runs processes at other
moments; neither may decide whether a test passes. torch, oneDNN and MKL are told in turn to use
instructions that an old or a usual processor has; the last time, two other processes keep the
machine busy.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--dist", "loadfile")
# A busy loop that ends with this process, however this process ends
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


class Configuration(NamedTuple):
    name: str
    environment: dict[str, str]
    busy_processes: int = 0


CONFIGURATIONS = (
    Configuration(
        "SSE4.1 instructions",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_CBWR": "COMPATIBLE",
        },
    ),
    Configuration(
        "AVX2 instructions",
        {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"},
    ),
    # The time limit of a test is there to end one that hangs; beside others a test may take long
    Configuration("beside two busy processes", {"PYTEST_TIMEOUT": "3600"}, busy_processes=2),
)


@contextmanager
def busy(number: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(configuration: Configuration, words: list[str]) -> tuple[bool, str]:
    name, environment, others = configuration
    told = " ".join(f"{key}={value}" for key, value in environment.items())
    print(f"\n=== {name}: {told}, one thread", flush=True)
    began = time.monotonic()
    with busy(others):
        command = [*PYTEST, *words]
        chosen = os.environ | environment | {"OMP_NUM_THREADS": "1"}
        passed = subprocess.run(command, cwd=ROOT, env=chosen, check=False).returncode == 0
    seconds = time.monotonic() - began
    return passed, f"{name}: {'passed' if passed else 'FAILED'} in {seconds / 60:.1f} min"


def main() -> None:
    outcomes = [run(configuration, sys.argv[1:]) for configuration in CONFIGURATIONS]
    print("\n=== " + "\n=== ".join(line for _, line in outcomes))
    sys.exit(0 if all(passed for passed, _ in outcomes) else 1)


if __name__ == "__main__":
    main()
