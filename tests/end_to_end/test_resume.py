"""A run that is stopped in any way ends with the bytes of a run that was not."""

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from tests.stopping import start

from unseen.atomic import read_json
from unseen.cli.main import main
from unseen.results.folder import RunFolder, find_runs

SETTINGS = ["data.unseen_domain=outlines", "steps=24", "images_per_domain=4", "evaluate_every=7"]
SETTINGS += ["checkpoint_every=5", "log_every=2", "schedule.name=cosine"]
SAME_FILES = ["settings.json", "data.json", "metrics.jsonl", "result.json", "README.md"]


def words(runs: Path) -> list[str]:
    return ["train", "digits/dmg", *SETTINGS, "--runs", str(runs)]


def train(words: list[str]) -> None:
    """In this process, which has loaded torch already."""
    with pytest.raises(SystemExit) as finished:
        main(words)
    assert finished.value.code == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    os.environ["UNSEEN_CACHE"] = str(shared_cache)
    runs = tmp_path_factory.mktemp("undisturbed")
    train(words(runs))
    (folder,) = find_runs(runs)
    return folder.path


def assert_same_run(found: Path, expected: Path) -> None:
    weights = sorted(p.relative_to(expected) for p in (expected / "weights").iterdir())
    assert [w.name for w in weights] == ["last.safetensors", "source.safetensors"]
    for name in [*SAME_FILES, *weights]:
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    assert list(found.rglob("*.partial")) == []


def test_killed_at_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    """SIGKILL at file operations spread over the run; then it is left alone."""
    moments = random.Random(0)
    for _ in range(3):
        process = start(words(tmp_path), f"SIGKILL {moments.randint(10, 30)} {tmp_path}")
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
    (folder,) = find_runs(tmp_path)
    assert folder.metrics.stat().st_size > 0
    assert not folder.finished
    train(words(tmp_path))
    for leftover in folder.path.rglob("*.partial"):  # of writes that the kill cut short
        leftover.unlink()
    assert_same_run(folder.path, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop(undisturbed: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Saves at once, says how to go on, and does go on: by the folder, and with --resume."""
    process = start(words(tmp_path), rf"{number.name} 2 rename.*checkpoint\.safetensors")
    _, errors = process.communicate()
    assert process.returncode == 128 + number
    (folder,) = find_runs(tmp_path)
    assert folder.checkpoint.is_file()
    assert "everything is saved" in errors
    assert f"unseen train {folder.path}" in errors.replace("\n", " ").replace("  ", " ")
    train(["train", str(folder.path), "--resume"])
    assert_same_run(folder.path, undisturbed)


def test_the_same_command_again_does_nothing(undisturbed: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*") if p.is_file()}
    train(words(undisturbed.parent))
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


def test_changed_images_are_noticed(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run does not go on with other images than it was started with."""
    copy = tmp_path / undisturbed.name
    shutil.copytree(undisturbed, copy)
    (copy / "result.json").unlink()
    data = read_json(copy / "data.json")
    (copy / "data.json").write_text(json.dumps(data | {"content": "other"}))
    with pytest.raises(SystemExit) as refused:
        main(["train", str(copy)])
    assert refused.value.code == 2
    assert "the images have changed" in capsys.readouterr().err
