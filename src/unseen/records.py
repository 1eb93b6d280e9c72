"""A run on disk: write it, read it. The format is described in docs/run-folder.md. No torch."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.atomic import atomic_file, write_json
from unseen.config import Experiment, complete_settings, identity
from unseen.errors import UnseenError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

FORMAT = 1
_LONGEST_NAME = 200
_RUN_LIST = "runs.json"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnseenError(f"there is no {path}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnseenError(f"{path} is damaged: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """As numpy's savez, without the time of day: equal arrays make equal files."""
    with atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)


class RunBusy(UnseenError):
    """Another process is training the run."""


class Failure(NamedTuple):
    """Why a run could not be brought to its end."""

    error: str
    attempts: int
    """How often it was tried, over all commands."""
    traceback: str


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "settings.json"
        self.environment = path / "environment.json"
        self.data = path / "data.json"
        self.metrics = path / "metrics.jsonl"
        self.timing = path / "timing.json"
        self.survey = path / "survey.safetensors"
        self.arrays = path / "arrays.npz"
        self.result = path / "result.json"
        self.checkpoint = path / "checkpoint.safetensors"
        self.failure = path / "failure.json"
        self.card = path / "README.md"

    def weights(self, rule: str) -> Path:
        """The weights that a selection rule chose."""
        return self.path / "weights" / f"{rule}.safetensors"

    @property
    def finished(self) -> bool:
        return self.result.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time trains a run. The lock ends with its process, however that ends.

        What an earlier process was writing when it was killed is removed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("w") as file:
            if fcntl is not None:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise RunBusy(
                        f"another process is training the run in {self.path}; wait until it is "
                        "done and give the same command again"
                    ) from None
                for leftover in self.path.rglob(".*.partial"):
                    leftover.unlink(missing_ok=True)
            yield

    def create(self, experiment: Experiment) -> None:
        """Make the folder with settings and environment, unless it is there already."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.settings.is_file():
            write_json(self.environment, describe_environment())
            write_json(self.settings, complete_settings(experiment))

    def read_settings(self) -> dict[str, Any]:
        if not self.settings.is_file():
            raise UnseenError(
                f"{self.path} is not a run folder: it holds no settings.json; "
                "'unseen train RECIPE' makes one"
            )
        return read_json(self.settings)

    def read_result(self) -> dict[str, Any]:
        if not self.finished:
            raise UnseenError(
                f"the run in {self.path} is not finished; go on with: unseen train {self.path}"
            )
        return read_json(self.result)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All records up to now; a line that a crash cut short is left out."""
        if not self.metrics.is_file():
            return []
        lines = self.metrics.read_text(encoding="utf-8").split("\n")
        try:
            return [json.loads(line) for line in lines[:-1]]
        except json.JSONDecodeError as error:
            raise UnseenError(f"{self.metrics} is damaged: {error}") from error

    def read_failure(self) -> Failure | None:
        """What kept the run from its end; None where nothing did, or where it has got there."""
        if self.finished or not self.failure.is_file():
            return None
        return Failure(**read_json(self.failure))

    def write_failure(self, error: str, traceback: str) -> None:
        """One more attempt has failed."""
        before = self.read_failure()
        attempts = 1 + (before.attempts if before else 0)
        write_json(self.failure, Failure(error, attempts, traceback)._asdict())


class MetricsLog:
    """Appends records; `size` at a checkpoint lets a resumed run cut off what came after it."""

    listener: Callable[[dict[str, Any]], None] | None = None
    """Gets every record once it is written."""

    def __init__(self, path: Path, size: int) -> None:
        path.touch()
        if path.stat().st_size < size:
            raise UnseenError(
                f"{path} is shorter than at the run's last checkpoint; put it back, or remove "
                f"{path.parent} to start anew"
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


def run_name(experiment: Experiment) -> str:
    """A folder name a person can read, made unique by the identity of the settings."""
    unseen = "+".join(experiment.data.unseen_domain) or "none"
    parts = (
        experiment.data.name,
        experiment.network.name,
        experiment.method.name,
        unseen,
        f"seed{experiment.seed}",
        identity(experiment),
    )
    *readable, unique = (safe_name(part) for part in parts)
    # file systems allow 255 bytes; a letter may take four
    shortened = "-".join(readable).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return f"{shortened}-{unique}"


def safe_name(text: str) -> str:
    """A name from settings as part of a folder's name."""
    return "".join(c if c.isalnum() or c in "_+." else "_" for c in text)[:60]


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


class RunList(NamedTuple):
    """Runs that belong together, wherever they lie, and what a reader should know of the choice."""

    runs: tuple[Path, ...]
    note: str = ""


def write_run_list(folder: Path, chosen: RunList) -> None:
    """`runs.json` beside the tables made of them; the folder then stands for these runs."""
    names = [Path(os.path.relpath(run, folder)).as_posix() for run in chosen.runs]
    write_json(folder / _RUN_LIST, {"runs": names, "note": chosen.note})


def read_run_list(folder: Path) -> RunList | None:
    """The runs that a folder of tables was made of; None for any other folder."""
    path = folder / _RUN_LIST
    if not path.is_file():
        return None
    content = read_json(path)
    try:
        return RunList(tuple(folder / name for name in content["runs"]), str(content["note"]))
    except (KeyError, TypeError) as error:
        raise UnseenError(f"{path} is damaged: it should hold 'runs' and 'note'") from error


def find_runs(folder: Path) -> Iterator[RunFolder]:
    """Every run below a folder, in order of name; or those that a folder of tables lists."""
    listed = read_run_list(folder)
    if listed is not None:
        yield from (RunFolder(run) for run in listed.runs)
        return
    for settings in sorted(folder.rglob("settings.json")):
        yield RunFolder(settings.parent)
