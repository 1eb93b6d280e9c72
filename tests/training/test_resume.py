"""A run that pauses, is stopped or dies, and goes on later, is the run that nobody disturbed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny, train
from tests.training.conftest import AUGMENTED

from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, run_name
from unseen.settings import catalog
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import build_experiment
from unseen.training import loop
from unseen.training.checkpoints import steps_saved

pytestmark = pytest.mark.usefixtures("few_pictures")
ADAPTING = [
    name
    for name in catalog.METHODS
    if catalog.load("method", name).traits.target_images == "optional"
]
MEAN = {"averaging__name": "mean"}
SWAD = {"averaging__name": "swad", "evaluate_every": 1}
RARE = {"metric": "balanced", "sampling": "class_balanced", "images_per_domain": 4}
FORMS: list[tuple[str, dict[str, Any]]] = [
    *((name, MEAN) for name in catalog.METHODS if name != "importance"),
    *((name, {}) for name in ("aggregate", "dmg", "metareg", "importance")),
    ("importance", MEAN | {"network__freeze_until": "fc1"}),
    *((name, {"setting": "adaptation"}) for name in ADAPTING),
    *(
        (name, {"setting": "adaptation", "data__unseen_domain": "plain,outlines"})
        for name in (*ADAPTING, "reweighting")
    ),
    ("dmg", {"method__prediction": "routed"}),
    ("dmg", {"data__train_on_unseen": True}),
    ("dmg", {"averaging__name": "ema", "averaging__start": 0.0}),
    ("dmg", SWAD | {"averaging__valley_start": 2}),
    ("metareg", SWAD | {"averaging__valley_start": 1}),
    ("aggregate", MEAN | {"network__name": "mnist_cnn"}),  # batch norm
    ("aggregate", {"network__name": "watched_parts:dropout_network"}),
    ("dmg", AUGMENTED),
    ("dmg", AUGMENTED | {"network__freeze_until": "pool", "network__store_features": False}),
    ("dmg", {"network__freeze_until": "fc1", "network__views": 2}),
    ("dmg", RARE),
]


def assert_same_files(found: RunFolder, expected: RunFolder) -> None:
    """All files but those that say where, when and for how long."""
    files, others = (
        {path.relative_to(run.path) for path in run.path.rglob("*") if path.is_file()}
        for run in (expected, found)
    )
    assert others == files
    for file in files - {Path("timing.json"), Path("environment.json"), Path("lock")}:
        assert (found.path / file).read_bytes() == (expected.path / file).read_bytes(), file


@pytest.mark.parametrize(("method", "changes"), FORMS)
@pytest.mark.usefixtures("watched")
def test_every_method_goes_on_exactly(method: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Stopped at a checkpoint, and between two, in the middle of each phase."""
    experiment = tiny(f"digits/{method}", **changes)
    whole = train(experiment, tmp_path / "whole")
    for until in (2, 5):
        stopped = train(experiment, tmp_path / "stopped", until)
        assert steps_saved(stopped.checkpoint) == until
        assert not stopped.finished
        assert [r["step"] for r in stopped.read_metrics() if "loss" in r][-1] == until
    assert_same_files(train(experiment, stopped.path, 99), whole)
    assert not whole.checkpoint.exists()  # the largest file, of no use to a finished run


@pytest.mark.parametrize("averaging", ["none", "mean"])
def test_a_run_dies_between_two_checkpoints_and_before_its_result(
    averaging: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the records after the last checkpoint is written again."""

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    experiment = tiny("digits/dmg", averaging__name=averaging)
    whole = train(experiment, tmp_path / "whole")
    for number, (function, saved) in enumerate([("validate", 2), ("finish", 6)]):
        with monkeypatch.context() as patch:
            patch.setattr(loop, function, die)
            with pytest.raises(KeyboardInterrupt):
                train(experiment, tmp_path / str(number))
        died = RunFolder(tmp_path / str(number))
        assert steps_saved(died.checkpoint) == saved
        assert_same_files(train(experiment, died.path), whole)


def test_a_pause_behind_is_none_and_one_at_the_end_is_the_end(tmp_path: Path) -> None:
    folder = train(tiny(), tmp_path, 5)
    written = folder.checkpoint.stat().st_mtime_ns
    train(tiny(), tmp_path, 4)
    assert folder.checkpoint.stat().st_mtime_ns == written
    assert train(tiny(), tmp_path, 6).finished


def test_settings_without_effect_on_the_result_may_change_on_the_way(tmp_path: Path) -> None:
    """The folder keeps the settings that it was started with; the result is the same."""
    experiment, changed = tiny("digits/dmg"), tiny("digits/dmg", checkpoint_every=1, log_every=2)
    assert run_name(changed) == run_name(experiment)
    whole = train(experiment, tmp_path / "whole")
    train(experiment, tmp_path / "resumed", 3)
    resumed = train(changed, tmp_path / "resumed")
    for file in ("result.json", "weights/source.safetensors", "settings.json"):
        assert (resumed.path / file).read_bytes() == (whole.path / file).read_bytes()
    logged = [record["step"] for record in resumed.read_metrics() if "loss" in record]
    assert logged == [1, 2, 3, 4, 6]


def test_a_run_moved_elsewhere_goes_on(tmp_path: Path) -> None:
    """Nothing in a run folder names the place where it was made."""
    experiment = tiny(steps=2)
    whole = train(experiment, tmp_path / "whole")
    folder = train(experiment, tmp_path / "run", 1)
    moved = Path(shutil.move(folder.path, tmp_path / "elsewhere"))
    assert_same_files(train(build_experiment(complete_settings(experiment)), moved), whole)


def damage(folder: RunFolder) -> None:
    folder.checkpoint.write_bytes(folder.checkpoint.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damage, r"checkpoint\.safetensors is damaged"),
        (lambda folder: folder.metrics.unlink(), r"metrics\.jsonl is shorter than"),
    ],
)
def test_lost_files_are_noticed(
    harm: Callable[[RunFolder], None], message: str, tmp_path: Path
) -> None:
    folder = train(tiny(steps=2), tmp_path / "run", 1)
    harm(folder)
    with pytest.raises(UnseenError, match=message):
        train(tiny(steps=2), folder.path)


def test_steps_saved_of_no_and_of_a_damaged_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    assert steps_saved(file) == 0
    file.write_bytes(b"not a checkpoint")
    assert steps_saved(file) == 0
