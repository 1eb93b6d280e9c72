"""Where a run came from: command, versions, commit, hardware. No torch."""

import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_PLACE = "src/unseen/records/provenance.py"


def describe_environment() -> dict[str, Any]:
    """Versions, commit and hardware: what a reader needs to repeat the run."""
    packages = ("unseen", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
        "commit": source_commit(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
    }


def processor_name() -> str:
    """Such as `AMD EPYC 9654`, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def source_commit(module: Path = Path(__file__)) -> str | None:
    """The commit of the source tree that runs; None where this module is not tracked at its place
    in a repository: an environment may lie inside the repository of another project."""
    place = _git(module, "ls-files", "--full-name", "--error-unmatch", module.name)
    return _git(module, "rev-parse", "HEAD") if place == _PLACE else None


def _git(module: Path, *words: str) -> str | None:
    """What git answers in the module's folder; None where it fails or is not there."""
    command = ["git", *words]
    try:
        answer = subprocess.run(
            command, cwd=module.parent, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
