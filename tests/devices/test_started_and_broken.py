"""Processes that torchrun or SLURM started, and processes that break down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.devices.two_processes import SETTINGS
from tests.tiny import train

from unseen import across_devices
from unseen.cli.main import main
from unseen.errors import DataError, SettingsError
from unseen.results.folder import RunFolder
from unseen.settings.recipes import load_experiment
from unseen.training.devices import _started_processes, launch

WORDS = [f"{key}={value}" for key, value in SETTINGS.items()]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]


def start(command: list[str], runs: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, "--runs", str(runs)],
        cwd=Path(__file__).parents[2],  # finds the methods of one_rank_fails
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_same_weights(found: RunFolder, recipe: str, path: Path) -> None:
    """Those of a run by one process."""
    one = load_file(train(load_experiment(recipe, SETTINGS), path).weights("last"))
    for name, tensor in load_file(found.weights("last")).items():
        torch.testing.assert_close(tensor, one[name], atol=1e-5, rtol=1e-4, msg=name)


def test_processes_that_slurm_starts_train_one_run(tmp_path: Path) -> None:
    words = ["-m", "unseen", "train", "digits/dmg", "devices.number=2", *WORDS]
    slurm = {
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "0",
        "SLURM_NODELIST": "127.0.0.1",
    }  # fmt: skip
    started = []
    for rank in "01":
        own = slurm | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        started.append(start([sys.executable, *words], tmp_path / "runs", **own))
    printed = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], printed
    assert "".join(out for out, _ in printed).count("out of domain") == 1, "rank 0 alone speaks"
    (found,) = (tmp_path / "runs").iterdir()
    assert_same_weights(RunFolder(found), "digits/dmg", tmp_path / "one")


def test_only_the_first_process_makes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes what was left half written, and cannot know that another one is writing it."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("unseen.training.execute._launch", lambda *rest: None)
    assert not train(load_experiment("digits/dmg", SETTINGS), tmp_path / "run").path.exists()


def test_processes_that_torchrun_starts_compare_methods(tmp_path: Path) -> None:
    words = ["compare", "digits", "--methods", "aggregate,dmg", "--unseen", "outlines"]
    settings = [word for word in WORDS if "unseen" not in word]
    command = [*TORCHRUN, "-m", "unseen", *words, "devices.number=2", *settings]
    process = start(command, tmp_path / "runs")
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    assert "2/2 dmg, unseen outlines, seed 0: out of domain" in err
    assert out.count("Out-of-domain accuracy") == 1
    runs = {path.parent for path in (tmp_path / "runs").glob("*/result.json")}
    assert len(runs) == 2
    (found,) = (path for path in runs if "-dmg-" in path.name)
    assert_same_weights(RunFolder(found), "digits/dmg", tmp_path / "one")


def test_processes_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    assert across_devices.cores() == 128
    monkeypatch.setattr(across_devices, "_processes_here", 8)
    assert across_devices.cores() == 16


@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_prepares_images_and_lets_the_others_go(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it cannot: the others then find out by themselves."""
    done: list[str] = []
    monkeypatch.setattr(across_devices, "_several", lambda: True)
    monkeypatch.setattr(torch.distributed, "new_group", lambda **_: None)
    monkeypatch.setattr(torch.distributed, "barrier", lambda _: done.append("meet"))

    def prepare() -> None:
        done.append("prepare")
        raise DataError("no images")

    with pytest.raises(DataError), across_devices.first_alone(first):
        prepare()
    assert done == (["prepare", "meet"] if first else ["meet", "prepare"])


def test_processes_beside_the_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would train the whole run, in one folder."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(SettingsError, match=r"4 processes were started .* set devices\.number=4"):
        launch(load_experiment("digits/dmg", SETTINGS), lambda fabric: None)


def test_nodes_share_the_devices() -> None:
    slurm = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2", "SLURM_NTASKS": "16"}
    assert _started_processes(slurm) == (8, 2)
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}
    assert _started_processes(slurm | torchrun) == (4, 2)
    assert _started_processes({"SLURM_NTASKS": "16", "SLURM_PROCID": "0"}) == (1, 1)


def test_a_killed_process_ends_the_others_and_one_goes_on(tmp_path: Path) -> None:
    method = "method.name=tests.devices.one_rank_fails:KilledOnSecond"
    words = [*WORDS, method, "steps=9", "checkpoint_every=2", "evaluate_every=3"]
    command = [sys.executable, "-m", "unseen", "train", "digits/aggregate", *words]
    process = start([*command, "devices.number=2"], tmp_path / "runs")
    _, err = process.communicate()
    assert process.returncode == 2
    assert "process 2 of 2 failed" in err
    assert "SIGKILL, most often because memory ran out" in err
    assert "Traceback" not in err
    (path,) = (tmp_path / "runs").iterdir()
    assert RunFolder(path).checkpoint.is_file()
    assert not RunFolder(path).finished
    with pytest.raises(SystemExit) as finished:
        main(["train", str(path), "devices.number=1", "--trust-imports", "tests.devices"])
    assert finished.value.code == 0
    steps = [r["step"] for r in RunFolder(path).read_metrics() if "validation" in r]
    assert steps == [3, 6, 9]
    assert RunFolder(path).finished


def test_a_mistake_of_one_process_alone_is_told_in_its_own_words(tmp_path: Path) -> None:
    chosen = {"devices.number": 2, "method.name": "tests.devices.one_rank_fails:FailsOnSecond"}
    experiment = load_experiment("digits/aggregate", SETTINGS | chosen)
    with pytest.raises(DataError, match=r"the second process alone cannot read photo\.jpg"):
        train(experiment, tmp_path / "run")
