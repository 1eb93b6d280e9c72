"""A run that is stopped in any way ends with the bytes of a run that was not."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unseen.atomic import read_json
from unseen.records.folder import RunFolder
from unseen.records.run_list import find_runs

SETTINGS = [
    "data.unseen_domain=outlines",
    "steps=24",
    "images_per_domain=4",
    "evaluate_every=7",
    "checkpoint_every=5",
    "log_every=2",
    "schedule.name=cosine",
]
SAME_FILES = ["settings.json", "data.json", "metrics.jsonl", "result.json", "README.md"]


def command(runs: Path, method: str = "dmg") -> list[str]:
    return [
        sys.executable,
        "-m",
        "unseen",
        "train",
        f"digits/{method}",
        *SETTINGS,
        "--runs",
        str(runs),
    ]


def train(runs: Path, method: str = "dmg") -> Path:
    subprocess.run(command(runs, method), check=True, capture_output=True, timeout=200)
    (folder,) = find_runs(runs)
    return folder.path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    os.environ["UNSEEN_CACHE"] = str(shared_cache)
    return train(tmp_path_factory.mktemp("undisturbed"))


def assert_same_run(found: Path, expected: Path) -> None:
    weights = sorted(p.relative_to(expected) for p in (expected / "weights").iterdir())
    assert [w.name for w in weights] == ["last.safetensors", "source.safetensors"]
    for name in [*SAME_FILES, *weights]:
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    assert list(found.rglob("*.partial")) == []


def test_killed_at_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL again and again, at moments spread over the run, until it gets through."""
    moments = random.Random(0)
    kills = 0
    for _ in range(12):
        process = subprocess.Popen(
            command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _wait_for_progress(tmp_path, process)
        time.sleep(moments.uniform(0, 0.6))
        if process.poll() is None and kills < 5:
            process.kill()
            kills += 1
        if process.wait(timeout=200) == 0:
            break
    assert kills >= 2
    (folder,) = find_runs(tmp_path)
    assert folder.finished
    for leftover in folder.path.rglob("*.partial"):  # of writes that the kill cut short
        leftover.unlink()
    assert_same_run(folder.path, undisturbed)


def _wait_for_progress(runs: Path, process: subprocess.Popen) -> None:
    """Until training writes its records, or the process is over."""
    before = sum(f.metrics.stat().st_size for f in find_runs(runs) if f.metrics.exists())
    while process.poll() is None:
        now = [f.metrics.stat().st_size for f in find_runs(runs) if f.metrics.exists()]
        if now and sum(now) != before:
            return
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(undisturbed: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Saves at once, says how to go on, and does go on: by the folder, and with --resume."""
    process = subprocess.Popen(
        command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _wait_for_progress(tmp_path, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 128 + number
    (folder,) = find_runs(tmp_path)
    assert folder.checkpoint.is_file()
    assert "everything is saved" in errors
    assert f"unseen train {folder.path}" in errors.replace("\n", " ").replace("  ", " ")
    again = [sys.executable, "-m", "unseen", "train", str(folder.path), "--resume"]
    subprocess.run(again, check=True, capture_output=True, timeout=200)
    assert_same_run(folder.path, undisturbed)


def test_the_same_command_again_does_nothing(undisturbed: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*") if p.is_file()}
    train(undisturbed.parent)
    assert before == {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*") if p.is_file()}


def test_the_record_is_complete(undisturbed: Path) -> None:
    folder = RunFolder(undisturbed)
    result = folder.read_result()
    assert (result.method, result.dataset, result.backbone) == ("dmg", "digits", "small_cnn")
    assert result.unseen_domains == ("outlines",)
    assert result.training_domains == ("plain", "blended", "coloured")
    assert set(result.rules) == {"source", "last"}
    for chosen in result.rules.values():
        assert set(chosen.views) == {"out_of_domain", "in_domain", "known_domain"}
        for view in chosen.views.values():
            for measured in view.values():
                confusion = measured.confusion
                assert confusion.sum() == measured.images > 0
                assert measured.accuracy == confusion.trace() / measured.images
                assert sum(measured.calibration.images) == measured.images
    metrics = folder.read_metrics()
    evaluated = [record["step"] for record in metrics if "validation" in record]
    assert evaluated == [7, 14, 21, 24]
    logged = [record["step"] for record in metrics if "loss" in record]
    assert logged == [*range(2, 25, 2)]
    assert all("unseen" not in record for record in metrics)
    statistics = metrics[-1]["statistics"]["fc1"]
    assert set(statistics["iou"]) == {"plain|blended", "plain|coloured", "blended|coloured"}
    environment = read_json(folder.environment)
    assert {"python", "packages", "commit", "platform", "cores"} <= set(environment)
    assert environment["packages"]["torch"]


def test_changed_images_are_noticed(undisturbed: Path, tmp_path: Path) -> None:
    """A run does not go on with other images than it was started with."""
    import json
    import shutil

    copy = tmp_path / undisturbed.name
    shutil.copytree(undisturbed, copy)
    (copy / "result.json").unlink()
    data = read_json(copy / "data.json")
    (copy / "data.json").write_text(json.dumps(data | {"content": "other"}))
    again = [sys.executable, "-m", "unseen", "train", str(copy)]
    answer = subprocess.run(again, capture_output=True, text=True, timeout=200, check=False)
    assert answer.returncode == 2
    assert "the images have changed" in answer.stderr
