"""Where a run came from: command, versions, commit, hardware. No torch."""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any


def describe_environment() -> dict[str, Any]:
    """Versions, commit and hardware: what a reader needs to repeat the run."""
    packages = ("unseen", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "commit": _commit(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """The commit of the source tree that runs, where it is one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
