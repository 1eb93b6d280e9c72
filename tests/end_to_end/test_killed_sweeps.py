"""A sweep whose command and workers are killed is finished by the same command, with the records of
a sweep that nobody disturbed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from tests.experiments.tiny_sweep import assert_same_records
from tests.tiny import TINY

from unseen.cli.main import main
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunFolder
from unseen.records.run_list import find_runs
from unseen.training.display import Display
from unseen.training.execute import execute

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

SETTINGS = [f"settings.{key}={value}" for key, value in TINY.items() if "unseen" not in key]
FOUR_RUNS = ["methods=aggregate,dmg", "unseen=outlines", "seeds=0-1", "draws=1"]
FOUR_RUNS += ["settings.steps=12", "settings.evaluate_every=6", "--workers", "1"]
TWENTY_FOUR_RUNS = [
    "methods=aggregate,dmg",
    "seeds=0",
    "draws=3",
    "settings.steps=30",
    "--workers",
    "2",
]


def _words(runs: Path, sweep: list[str], *options: str) -> list[str]:
    return ["sweep", "digits", *SETTINGS, *sweep, "--runs", str(runs), *options]


class Command:
    """`unseen sweep` in a process of its own."""

    def __init__(self, runs: Path, sweep: list[str], *options: str) -> None:
        self.runs = runs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "unseen", *_words(runs, sweep, *options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, seconds: float = 280) -> tuple[int, str]:
        """Its exit code, and what it said to the user."""
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said

    def wait_for_progress(self) -> None:
        """Until more is written about training than there was."""
        before = _written(self.runs)
        while _written(self.runs) <= before and self.process.poll() is None:
            time.sleep(0.02)

    def workers(self) -> list[int]:
        """Processes that train, here or in Ray."""
        return [
            pid
            for pid in _descendants(self.process.pid)
            if any(mark in _command_line(pid) for mark in ("spawn_main", "ray::train_there"))
        ]


def _written(runs: Path) -> int:
    return sum(f.metrics.stat().st_size for f in find_runs(runs) if f.metrics.exists())


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


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 20
    while any(_command_line(pid) for pid in pids):
        assert time.monotonic() < until, "workers outlive their command"
        time.sleep(0.05)


def _results(runs: Path) -> dict[str, int]:
    """Finished runs, and when each was finished."""
    return {f.path.name: f.result.stat().st_mtime_ns for f in find_runs(runs) if f.finished}


def _stop_once_it_trains(runs: Path) -> None:
    until = time.monotonic() + 200
    while time.monotonic() < until:
        if _written(runs) > 0:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        time.sleep(0.02)


def test_stopped_and_killed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """First asked to stop, then a worker killed, then the command; then left alone.

    What need not be killed is done in this process, which has loaded torch already.
    """
    runs = tmp_path / "disturbed"
    threading.Thread(target=_stop_once_it_trains, args=(runs,), daemon=True).start()
    with pytest.raises(SystemExit) as stopped:
        main(_words(runs, FOUR_RUNS))
    assert stopped.value.code == 128 + signal.SIGTERM
    said = capfd.readouterr().err
    assert "everything is saved" in said
    assert "Continue with the same command" in said
    assert "Traceback" not in said
    assert any(folder.checkpoint.is_file() for folder in find_runs(runs))

    command = Command(runs, FOUR_RUNS)
    command.wait_for_progress()
    _kill(command.workers()[0])
    command.wait_for_progress()
    workers = command.workers()
    command.process.kill()
    command.finish()
    _wait_until_gone(workers)
    done = _results(runs)

    with pytest.raises(SystemExit) as finished:
        main(_words(runs, FOUR_RUNS))
    assert finished.value.code == 0
    assert len(_results(runs)) == 4
    assert done.items() <= _results(runs).items()
    for folder in find_runs(runs):
        _train_undisturbed(folder, tmp_path / "undisturbed")
    assert_same_records(runs, tmp_path / "undisturbed")


def _train_undisturbed(folder: RunFolder, runs: Path) -> None:
    with Display(Console(quiet=True), 1, "") as display:
        experiment = build_experiment(folder.read_settings())
        execute(experiment, RunFolder(runs / folder.path.name), display)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on", ["here", "ray"])
def test_killed_three_times(tmp_path: Path, on: str) -> None:
    """24 runs. Each time a worker dies at a random moment, and then the command."""
    started = time.monotonic()
    assert Command(tmp_path / "undisturbed", TWENTY_FOUR_RUNS).finish(1800)[0] == 0
    alone = time.monotonic() - started
    seed = random.randrange(10**6)
    print(f"seed {seed}; undisturbed in {alone:.0f} s")
    moments = random.Random(seed)
    runs = tmp_path / "disturbed"
    done: dict[str, int] = {}
    for _ in range(3):
        command = Command(runs, TWENTY_FOUR_RUNS, "--on", on)
        command.wait_for_progress()
        time.sleep(moments.uniform(0, alone / 8))
        workers = command.workers()
        _kill(moments.choice(workers))
        time.sleep(moments.uniform(0, alone / 8))
        workers = command.workers()
        assert command.process.poll() is None, "it was quicker than the kill"
        command.process.kill()
        command.finish()
        _wait_until_gone(workers)
        assert done.items() <= _results(runs).items(), "a finished run was trained again"
        done = _results(runs)
        print(f"{len(done)} of 24 finished when killed")
    code, said = Command(runs, TWENTY_FOUR_RUNS, "--on", on).finish(1800)
    assert code == 0, said
    assert done.items() <= _results(runs).items(), "a finished run was trained again"
    print(f"all in {time.monotonic() - started:.0f} s")
    assert len(_results(runs)) == 24
    assert_same_records(runs, tmp_path / "undisturbed")
