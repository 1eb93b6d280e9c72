"""A run that pauses at a step and goes on later is the run that never paused."""

from pathlib import Path

from rich.console import Console
from tests.sweeps.tiny_sweep import assert_same_run

from unseen.results.folder import RunFolder, run_name
from unseen.training.checkpoints import steps_saved
from unseen.training.display import Display
from unseen.training.execute import execute


def test_pausing_changes_nothing(tiny, run_tiny, tmp_path: Path) -> None:
    experiment = tiny("digits/dmg")
    whole = run_tiny(experiment, tmp_path / "whole")
    paused = RunFolder(tmp_path / "paused")
    with Display(Console(quiet=True), 1, "") as display:
        for until in (3, 5):  # beside the checkpoints at 2 and 4
            execute(experiment, paused, display, until=until)
            assert steps_saved(paused.checkpoint) == until
            assert not paused.finished
            assert [r["step"] for r in paused.read_metrics() if "loss" in r][-1] == until
        written = paused.checkpoint.stat().st_mtime_ns
        execute(experiment, paused, display, until=4)  # it is further already
        assert paused.checkpoint.stat().st_mtime_ns == written
        execute(experiment, paused, display, until=99)
    assert_same_run(paused.path, whole.path)
    assert not paused.checkpoint.exists()  # the largest file, of no use to a finished run


def test_settings_without_effect_on_the_result_may_change_on_the_way(
    tiny, run_tiny, tmp_path: Path
) -> None:
    """The folder keeps the settings that it was started with; the result is the same."""
    experiment = tiny("digits/dmg")
    whole = run_tiny(experiment, tmp_path / "whole")
    changed = tiny("digits/dmg", checkpoint_every=1, log_every=2)
    assert run_name(changed) == run_name(experiment)
    resumed = RunFolder(tmp_path / "resumed")
    with Display(Console(quiet=True), 1, "") as display:
        execute(experiment, resumed, display, until=3)
        execute(changed, resumed, display)
    assert resumed.read_result() == whole.read_result()
    assert resumed.weights("source").read_bytes() == whole.weights("source").read_bytes()
    assert resumed.settings.read_bytes() == whole.settings.read_bytes()
    logged = [record["step"] for record in resumed.read_metrics() if "loss" in record]
    assert logged == [1, 2, 3, 4, 6]


def test_pausing_at_the_last_step_is_the_end(tiny, tmp_path: Path) -> None:
    with Display(Console(quiet=True), 1, "") as display:
        execute(tiny(), RunFolder(tmp_path), display, until=6)
    assert RunFolder(tmp_path).finished


def test_steps_saved_of_no_and_of_a_damaged_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    assert steps_saved(file) == 0
    file.write_bytes(b"not a checkpoint")
    assert steps_saved(file) == 0
