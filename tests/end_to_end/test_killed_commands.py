"""Commands that are killed while they write: the same command again writes what it would have."""

import signal
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.stopping import start
from tests.sweeps.merging.conftest import save_start
from tests.tiny import TINY

import unseen
from unseen.cli.main import main
from unseen.results.folder import find_runs

TIMES = {"lock", "timing.json", "environment.json"}
MOMENTS = {
    "merge": (r"rename.*/source\.safetensors", r"rename.*/result\.json"),
    "export": (r"rename.*/model\.onnx", r"rename.*/model\.onnx\.md"),
    "prepare": (r"open.*/images\.bin", r"rename.*/manifest\.json"),
}
"""Before what each command is killed."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    """Two runs from the same weights, which can be merged."""
    home = tmp_path_factory.mktemp("killed")
    settings: dict[str, Any] = TINY | {
        "network.pretrained": str(save_start(home / "start.safetensors"))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        for seed in (0, 1):
            unseen.fit("digits/aggregate", runs=home / "runs", seed=seed, **settings)
    return home / "runs"


def words_of(command: str, runs: Path, home: Path) -> list[str]:
    """What is written to folders below the home."""
    if command == "merge":
        return ["merge", str(runs), "-o", str(home / "out" / "model")]
    if command == "export":
        run = str(next(find_runs(runs)).path)
        return ["export", run, "--to", "onnx", "-o", str(home / "out" / "model.onnx")]
    network = ["network.name=small_cnn", "network.pretrained=false"]
    return ["prepare", "folder", "--root", str(runs.parent / "images"), "--size", "16", *network]


def give(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0


def written(folder: Path) -> dict[str, bytes]:
    """All files, hidden ones included, but those that tell the time, and what a kill cut short."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in TIMES]
    whole = [path for path in files if path.suffix != ".partial"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in whole}


@pytest.mark.parametrize("command", MOMENTS)
def test_a_killed_command_is_given_again(
    command: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, domain in enumerate(("north", "north", "south", "south")):
        place = runs.parent / "images" / domain / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (60 * number, 0, 0)).save(place)
    found = []
    for name, moments in (("undisturbed", ()), ("killed", MOMENTS[command])):
        home = tmp_path / name
        if command == "prepare":  # indexes beside the prepared images know times
            monkeypatch.setenv("UNSEEN_CACHE", str(home))
        words = words_of(command, runs, home)
        for moment in moments:
            process = start(words, f"SIGKILL 1 {moment}")
            _, said = process.communicate()
            assert process.returncode == -signal.SIGKILL, said
        give(words)
        found.append(written(home / ("images" if command == "prepare" else "out")))
    assert found[0] == found[1] != {}
