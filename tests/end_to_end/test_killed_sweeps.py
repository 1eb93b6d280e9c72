"""A sweep whose command and workers are killed is finished by the same command, with the records of
a sweep that nobody disturbed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stopping import start
from tests.sweeps.tiny_sweep import assert_same_records
from tests.tiny import TINY, train

from unseen.cli.main import main
from unseen.results.folder import find_runs
from unseen.settings.recipes import build_experiment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

SETTINGS = [f"settings.{key}={value}" for key, value in TINY.items() if "unseen" not in key]
FOUR_RUNS = ["methods=aggregate,dmg", "unseen=outlines", "seeds=0-1", "draws=1"]
FOUR_RUNS += ["settings.steps=12", "settings.evaluate_every=6", "--workers", "1"]
TWENTY_FOUR_RUNS = ["methods=aggregate,dmg", "seeds=0", "draws=3", "settings.steps=30"]
TWENTY_FOUR_RUNS += ["--workers", "2"]


def _words(runs: Path, sweep: list[str], *options: str) -> list[str]:
    return ["sweep", "digits", *SETTINGS, *sweep, "--runs", str(runs), *options]


def _results(runs: Path) -> dict[str, int]:
    """Finished runs, and when each was finished."""
    return {f.path.name: f.result.stat().st_mtime_ns for f in find_runs(runs) if f.finished}


def test_stopped_and_killed(tmp_path: Path) -> None:
    """First asked to stop, then a worker killed, and later the command; then left alone."""
    runs = tmp_path / "disturbed"
    words = _words(runs, FOUR_RUNS)
    stopped = start(words, r"SIGTERM 2 rename.*checkpoint\.safetensors")
    _, said = stopped.communicate()
    assert stopped.returncode == 128 + signal.SIGTERM
    assert "everything is saved" in said
    assert "Continue with the same command" in said
    assert "Traceback" not in said
    assert any(folder.checkpoint.is_file() or folder.finished for folder in find_runs(runs))
    assert len(_results(runs)) < 4

    mark = tmp_path / "worker killed"
    moments = (r"SIGKILL 2 rename.*checkpoint worker", r"SIGKILL 2 rename.*/result\.json")
    killed = start(words, *moments, STOPPED=str(mark))
    _, said = killed.communicate()  # ends when the workers have ended, too
    assert killed.returncode == -signal.SIGKILL, said
    assert mark.exists()
    done = _results(runs)
    assert 1 <= len(done) < 4

    with pytest.raises(SystemExit) as finished:
        main(words)
    assert finished.value.code == 0
    assert len(_results(runs)) == 4
    assert done.items() <= _results(runs).items()
    for folder in find_runs(runs):
        experiment = build_experiment(folder.read_settings())
        train(experiment, tmp_path / "undisturbed" / folder.path.name)
    assert_same_records(runs, tmp_path / "undisturbed")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on", ["here", "ray"])
def test_killed_three_times(tmp_path: Path, on: str) -> None:
    """24 runs. Each time a worker dies after some of them, and then the command."""
    undisturbed = start(_words(tmp_path / "undisturbed", TWENTY_FOUR_RUNS))
    _, said = undisturbed.communicate()
    assert undisturbed.returncode == 0, said
    seed = random.randrange(10**6)
    moments = iter(sorted(random.Random(seed).sample(range(1, 20), 6)))
    runs = tmp_path / "disturbed"
    words = _words(runs, TWENTY_FOUR_RUNS, "--on", on)
    done: dict[str, int] = {}
    for _ in range(3):
        command = start(words)
        _wait_for_results(runs, next(moments), command)
        os.kill(_workers(command.pid)[0], signal.SIGKILL)
        _wait_for_results(runs, next(moments), command)
        command.kill()
        command.communicate()
        assert done.items() <= _results(runs).items(), "a finished run was trained again"
        done = _results(runs)
        print(f"seed {seed}: {len(done)} of 24 finished when killed")
    finished = start(words)
    _, said = finished.communicate()
    assert finished.returncode == 0, said
    assert done.items() <= _results(runs).items(), "a finished run was trained again"
    assert len(_results(runs)) == 24
    assert_same_records(runs, tmp_path / "undisturbed")


def _wait_for_results(runs: Path, number: int, command: subprocess.Popen[str]) -> None:
    while len(_results(runs)) < number:
        assert command.poll() is None, command.communicate()
        time.sleep(0.02)


def _workers(pid: int) -> list[int]:
    """Processes that train, here or in Ray."""
    marks = ("spawn_main", "ray::train_there")
    return [p for p in _descendants(pid) if any(mark in _command_line(p) for mark in marks)]


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""
