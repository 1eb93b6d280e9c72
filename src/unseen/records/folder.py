"""The folder of a run: its files, its lock and its name.

The format is described in docs/run-folder.md. No torch.
"""

from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import read_json, write_json
from unseen.config import Experiment, complete_settings, identity
from unseen.errors import UnseenError
from unseen.records.format import FORMAT, check_format
from unseen.records.log import read_log
from unseen.records.merged import merged_identity
from unseen.records.provenance import describe_environment
from unseen.records.result import RunResult, read_result, write_result

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_LONGEST_NAME = 200


class RunBusy(UnseenError):
    """Another process is training the run."""


class Failure(NamedTuple):
    """Why a run could not be finished."""

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
        self.head = path / "head.safetensors"
        self.arrays = path / "arrays.npz"
        self.pictures = path / "pictures.npz"
        self.profile = path / "profile.npz"
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
    def locked(self) -> Generator[None]:
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
                        "done and run the same command again"
                    ) from None
                for leftover in self.path.rglob(".*.partial"):
                    leftover.unlink(missing_ok=True)
            yield

    def clear_up(self) -> None:
        """Remove what only an unfinished run needs: its checkpoint, which is the largest file by
        far, and the error of an earlier attempt."""
        if self.finished:
            self.checkpoint.unlink(missing_ok=True)
            self.failure.unlink(missing_ok=True)

    def create(self, experiment: Experiment) -> None:
        """Make the folder with settings and environment; one that is there already keeps them."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.settings.is_file():
            self.read_settings()  # a run of another version is not resumed
            return
        write_json(self.environment, describe_environment())
        write_json(self.settings, {"format": FORMAT, **complete_settings(experiment)})

    def read_settings(self) -> dict[str, Any]:
        """The settings that the run was started with."""
        if not self.settings.is_file():
            raise UnseenError(
                f"{self.path} is not a run folder: it holds no settings.json; "
                "'unseen train RECIPE' makes one"
            )
        settings = read_json(self.settings)
        check_format(
            settings,
            self.path,
            "train it again in another folder of runs (--runs DIR), or open it with the version of "
            "unseen that wrote it",
        )
        return {key: value for key, value in settings.items() if key != "format"}

    def read_result(self) -> RunResult:
        if not self.finished:
            raise UnseenError(
                f"the run in {self.path} is not finished; resume it with: unseen train {self.path}"
            )
        return read_result(self.result)

    def write_result(self, result: RunResult) -> None:
        """The mark of a finished run."""
        write_result(self.result, result)

    def read_metrics(self) -> list[dict[str, Any]]:
        return read_log(self.metrics)

    def read_failure(self) -> Failure | None:
        """Why the last attempt failed; None where none did, or where the run has finished since."""
        if self.finished or not self.failure.is_file():
            return None
        return Failure(**read_json(self.failure))

    def write_failure(self, error: str, traceback: str) -> None:
        """One more attempt has failed."""
        before = self.read_failure()
        attempts = 1 + (before.attempts if before else 0)
        write_json(self.failure, Failure(error, attempts, traceback)._asdict())


def run_name(experiment: Experiment) -> str:
    """A folder name a person can read, made unique by the identity of the settings."""
    return _folder_name(experiment, f"seed{experiment.seed}", identity(experiment))


def merged_name(experiment: Experiment, choose: str, runs: Collection[str]) -> str:
    """As `run_name`, of a model merged from the runs with these identities."""
    return _folder_name(experiment, f"merged{len(runs)}", merged_identity(choose, runs))


def _folder_name(experiment: Experiment, which: str, unique: str) -> str:
    unseen = "+".join(experiment.data.unseen_domain) or "none"
    parts = (
        experiment.data.name,
        experiment.network.name,
        experiment.method.name,
        unseen,
        which,
        unique,
    )
    *readable, unique = (safe_name(part) for part in parts)
    # file systems allow 255 bytes; a letter may take four
    shortened = "-".join(readable).encode()[:_LONGEST_NAME].decode(errors="ignore")
    return f"{shortened}-{unique}"


def safe_name(text: str) -> str:
    """A name from settings as part of a folder's name."""
    return "".join(c if c.isalnum() or c in "_+." else "_" for c in text)[:60]
