"""Small runs with trackers, kept away from the accounts and folders of whoever runs the tests."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.tiny import TINY

from unseen.results.folder import RunFolder, run_name
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import flattened, load_experiment
from unseen.training import loop
from unseen.training.display import Display
from unseen.training.execute import execute
from unseen.training.loop import save
from unseen.training.session import Session

Series = dict[str, dict[int, float]]
"""Values by name and step."""

CRASH_AT = 4


class Crash(Exception):
    """What no run is prepared for."""


@pytest.fixture(autouse=True)
def _nobodys_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture(scope="session")
def experiment() -> Experiment:
    return load_experiment("digits/dmg", TINY)


@pytest.fixture(scope="session")
def run_with(experiment: Experiment) -> Callable[..., RunFolder]:
    """Carry out the run below a folder, with trackers: none of them fails, unless a console is
    given for what they say then."""

    def run(runs: Path, names: Sequence[str], console: Console | None = None) -> RunFolder:
        folder = RunFolder(runs / run_name(experiment))
        shown = io.StringIO()
        with Display(console or Console(file=shown, width=500), 6, "") as display:
            execute(experiment, folder, display, names)
        assert "failed" not in shown.getvalue()
        return folder

    return run


@pytest.fixture
def crash_once(run_with: Callable[..., RunFolder]) -> Callable[..., None]:
    """A run that dies after step 4, two steps after its last checkpoint."""

    def crash(session: Session) -> None:
        if session.step == CRASH_AT:
            raise Crash
        save(session)

    def run(runs: Path, names: Sequence[str]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "save", crash)
            with pytest.raises(Crash):
                run_with(runs, names)

    return run


@pytest.fixture(scope="session")
def recorded() -> Callable[[RunFolder], Series]:
    """What a tracker should hold of a run while it trains, read from its own record."""

    def read(folder: RunFolder) -> Series:
        found: Series = {}
        for record in folder.read_metrics():
            step = record.pop("step")
            if "validation" not in record:
                record = {"train": record}
            for name, value in flattened(record, "/").items():
                found.setdefault(name, {})[step] = value
        assert set(found["train/loss"]) == {1, 2, 3, 4, 5, 6}
        assert set(found["validation/plain"]) == {3, 6}
        assert set(found["statistics/fc1/iou/plain|blended/soft"]) == {3, 6}
        return found

    return read
