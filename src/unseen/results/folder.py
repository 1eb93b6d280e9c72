"""Run folders: their files, log and environment, their names, and lists of runs that belong
together."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from unseen.atomic import read_json, read_object, write_json
from unseen.errors import UnseenError
from unseen.results import files
from unseen.results.files import FORMAT, FormatError, check_format
from unseen.results.result import RunResult, merged_identity, read_result, write_result
from unseen.settings.experiment import Experiment, complete_settings, identity


class MetricsLog:
    """Appends records to a file; `size` at a checkpoint lets a resumed run cut off what came after
    it."""

    listener: Callable[[dict[str, Any]], None] | None = None
    """Gets every record once it is written."""

    def __init__(self, path: Path, size: int) -> None:
        path.touch()
        if path.stat().st_size < size:
            raise UnseenError(
                f"{path} is shorter than at the run's last checkpoint; put it back, or remove "
                f"{path.parent} to start again"
            )
        os.truncate(path, size)
        self._file = path.open("ab")

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        if self.listener is not None:
            self.listener(record)

    def sync(self) -> int:
        """Makes sure that everything is on disk, and returns the number of bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def describe_environment() -> dict[str, Any]:
    """Returns versions, commit and hardware: what a reader needs to repeat the run."""
    packages = ("unseen", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")
    versions: dict[str, str | None] = dict.fromkeys(packages)
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": versions,
        "commit": source_commit(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
    }


def processor_name() -> str:
    """Returns a name such as `AMD EPYC 9654`, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def source_commit(module: Path = Path(__file__)) -> str | None:
    """Returns the commit of the source tree that runs; None where git is not installed, or this
    module is not tracked at its place in a repository: an environment may lie inside the repository
    of another project."""

    def git(*words: str) -> str:
        command, where = ["git", *words], module.parent
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, timeout=5, check=True
        )
        return done.stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        place = git("ls-files", "--full-name", "--error-unmatch", module.name)
        return git("rev-parse", "HEAD") if place == "src/unseen/results/folder.py" else None
    return None


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_LONGEST_NAME = 200
_REMEDY = "put it back, or remove the run's folder and train it again"


class RunBusy(UnseenError):
    """Another process is training the run."""


class _File:
    """A file of a run folder. Its path is made when it is asked for: a plan may have 100,000."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", owner: type["RunFolder"]) -> Path:
        return folder.path / self._name


class RunFolder(os.PathLike[str]):
    """The files of one run; it stands for its path wherever one is asked for."""

    settings = _File("settings.json")
    environment = _File("environment.json")
    data = _File("data.json")
    metrics = _File("metrics.jsonl")
    timing = _File("timing.json")
    dataset_pass = _File("dataset_pass.safetensors")
    head = _File("head.safetensors")
    arrays = _File("arrays.npz")
    pictures = _File("pictures.npz")
    profile = _File("profile.npz")
    result = _File("result.json")
    checkpoint = _File("checkpoint.safetensors")
    failure = _File("failure.json")
    card = _File("README.md")

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)

    def weights(self, rule: str) -> Path:
        """Returns the file of the weights that a selection rule chose."""
        return self.path / "weights" / f"{rule}.safetensors"

    @property
    def finished(self) -> bool:
        return self.result.is_file()

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keeps other processes from training the run. The lock ends with its process, however that
        ends.

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
                        "done and run the same command again"
                    ) from None
                for leftover in self.path.rglob(".*.partial"):
                    leftover.unlink(missing_ok=True)
            yield

    def clear_up(self) -> None:
        """Removes what only an unfinished run needs: its checkpoint, which is the largest file by
        far, and the error of an earlier attempt."""
        if self.finished:
            self.checkpoint.unlink(missing_ok=True)
            self.failure.unlink(missing_ok=True)

    def create(self, experiment: Experiment) -> None:
        """Makes the folder with settings and environment; one that is there already keeps them."""
        if self.settings.is_file():
            self.read_settings()  # a run of another version is not resumed
            return
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.environment, describe_environment())
        write_json(self.settings, {"format": FORMAT, **complete_settings(experiment)})

    def read_settings(self) -> dict[str, Any]:
        """Returns the settings that the run was started with."""
        if not self.settings.is_file():
            raise UnseenError(
                f"{self.path} is not a run folder: it holds no settings.json; "
                "'unseen train RECIPE' makes one"
            )
        settings = read_json(self.checked(self.settings))
        remedy = "train it again in another folder of runs (--runs DIR), or open it with the "
        check_format(settings, self.path, f"{remedy}version of unseen that wrote it")
        return {key: value for key, value in settings.items() if key != "format"}

    def read_result(self) -> RunResult:
        try:
            content = self.result.read_bytes()
        except FileNotFoundError:
            raise UnseenError(
                f"the run in {self.path} is not finished; resume it with: unseen train {self.path}"
            ) from None
        files.checked(self.path, self.result, _REMEDY, content)
        return read_result(self.result, content)

    def write_result(self, result: RunResult) -> None:
        """Writes the result, which marks a run as finished."""
        write_result(self.result, result)

    def finish(self, result: RunResult) -> None:
        """Writes the digests of all files, and then the result. Files that may change or go have
        none, nor have those that differ when the run is repeated."""
        written = self.path / f".{self.result.name}.partial"
        write_result(written, result)
        others = {self.card, self.checkpoint, self.failure, self.environment, self.timing}
        others |= {self.path / "lock", self.path / files.DIGESTS}
        kept = {file for file in self.path.rglob("[!.]*") if file.is_file()} - others
        files.write_digests(self.path, {file: file for file in kept} | {self.result: written})
        written.replace(self.result)

    @property
    def has_digests(self) -> bool:
        return (self.path / files.DIGESTS).is_file()

    def checked(self, file: Path, content: bytes | None = None) -> Path:
        """Return a file of a finished run; raise where it does not hold what was written at its
        end."""
        return files.checked(self.path, file, _REMEDY, content) if self.finished else file

    def read_metrics(self, with_key: str = "") -> list[dict[str, Any]]:
        """Returns all records up to now, or those with a key; a line that a crash cut short is left
        out."""
        try:
            content = self.metrics.read_bytes()
        except FileNotFoundError:
            return []
        self.checked(self.metrics, content)
        try:
            lines = content.decode().split("\n")[:-1]
            records = [from_json(line) for line in lines if with_key in line]
            if not all(isinstance(record["step"], int) for record in records):
                raise TypeError("a step is no number")
        except (ValueError, TypeError, KeyError) as error:
            raise UnseenError(f"{self.metrics} is damaged: {error}") from error
        return [record for record in records if not with_key or with_key in record]

    def read_seconds(self) -> float:
        """Returns how long the finished run has trained."""
        seconds = read_object(self.timing).get("seconds")
        if not isinstance(seconds, int | float) or not math.isfinite(seconds):
            raise UnseenError(f"{self.timing} is damaged: it does not say how many seconds it took")
        return seconds

    def read_failure(self) -> dict[str, Any] | None:
        """Returns `error`, `attempts` (over all commands) and `traceback` of a run that could not
        be finished; None where no attempt failed, or the run has finished since."""
        if self.finished or not self.failure.is_file():
            return None
        return read_object(self.failure)

    def write_failure(self, error: str, traceback: str) -> None:
        """Records that one more attempt has failed."""
        attempts = 1 + (self.read_failure() or {"attempts": 0})["attempts"]
        write_json(self.failure, {"error": error, "attempts": attempts, "traceback": traceback})


def run_name(experiment: Experiment) -> str:
    """Returns a folder name that people can read, made unique by the identity of the settings."""
    return _folder_name(experiment, f"seed{experiment.seed}", identity(experiment))


def find_run(runs: Path, experiment: Experiment) -> RunFolder:
    """Returns the folder of a run below a folder of runs: the one that has the identity of these
    settings, whatever recipe it was trained with, or else a new one."""
    return _with_identity(runs / run_name(experiment))


def find_merged(
    runs: Path, experiment: Experiment, choose: str, merged: Collection[str]
) -> RunFolder:
    """Returns the folder of a model that is merged from the runs with these identities."""
    unique = merged_identity(choose, merged)
    return _with_identity(runs / _folder_name(experiment, f"merged{len(merged)}", unique))


def _with_identity(path: Path) -> RunFolder:
    """Returns the folder with the same identity, where another recipe made it."""
    with suppress(FileNotFoundError):
        changed = path.parent.stat().st_mtime_ns
        if not path.is_dir():
            names = _names_by_identity(path.parent, changed)
            path = path.with_name(names.get(path.name.rpartition("-")[2], path.name))
    return RunFolder(path)


@lru_cache(maxsize=1)
def _names_by_identity(runs: Path, changed: int) -> dict[str, str]:
    """Returns the names of the folders of runs as they were when their parent last changed."""
    return {each.name.rpartition("-")[2]: each.name for each in sorted(runs.glob("*-*"))}


def _folder_name(experiment: Experiment, which: str, unique: str) -> str:
    data, recipe = experiment.data, experiment.recipe or experiment.method.name
    unseen = "+".join(data.unseen_domain) or "none"
    parts = (data.name, experiment.network.name, recipe, unseen, which)
    # file systems allow 255 bytes; a letter may take four
    readable = "-".join(map(safe_name, parts)).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return f"{readable}-{unique}"


@cache
def safe_name(text: str) -> str:
    """Returns a name from settings in a form that can be part of a folder's name."""
    return "".join(c if c.isalnum() or c in "_+." else "_" for c in text)[:60]


_RUN_LIST = "runs.json"


class RunList(NamedTuple):
    """Runs that belong together, wherever they lie, and what a reader should know of the choice."""

    runs: tuple[Path, ...]
    note: str = ""
    rows: tuple[str, ...] = ()
    """What the tables call each run's method; empty: the methods' own names."""


def write_run_list(folder: Path, chosen: RunList) -> None:
    """Writes `runs.json` beside the tables made of them; the folder then stands for these runs."""
    names = [Path(os.path.relpath(run, folder)).as_posix() for run in chosen.runs]
    content = {"format": FORMAT, "runs": names, "note": chosen.note, "rows": list(chosen.rows)}
    write_json(folder / _RUN_LIST, content)


def read_run_list(folder: Path) -> RunList | None:
    """Returns the runs that a folder of tables was made of; None for any other folder."""
    path = folder / _RUN_LIST
    if not path.is_file():
        return None
    content = read_json(path)
    check_format(content, path, "make the tables again: unseen compare, or unseen sweep")
    try:
        runs = tuple(folder / name for name in content["runs"])
        return RunList(runs, str(content["note"]), tuple(content.get("rows", ())))
    except (KeyError, TypeError) as error:
        raise UnseenError(f"{path} is damaged: it should hold 'runs' and 'note'") from error


def find_runs(folder: Path) -> Iterator[RunFolder]:
    """Yields every run below a folder, in order of name; or those that a folder of tables lists.
    What is still being made has a name that begins with a dot, and is passed over."""
    listed = read_run_list(folder)
    if listed is not None:
        yield from (RunFolder(run) for run in listed.runs)
        return
    for settings in sorted(folder.rglob("settings.json")):
        if not any(part.startswith(".") for part in settings.relative_to(folder).parts):
            yield RunFolder(settings.parent)


def about_other_formats(runs: Path) -> str:
    """Returns a warning where runs of another format lie among those to come, or nothing."""
    others: list[str] = []
    for settings in sorted(runs.glob("*/settings.json")):
        try:
            RunFolder(settings.parent).read_settings()
        except FormatError:
            others.append(settings.parent.name)
        except UnseenError:
            continue
    if not others:
        return ""
    return (
        f"{runs} holds runs of another version of unseen (this one writes format {FORMAT}), "
        f"{len(others)} in number, for example {others[0]}; they are left alone and not counted. "
        "Move them away, or choose another folder with --runs DIR"
    )
