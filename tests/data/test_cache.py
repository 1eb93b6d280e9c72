import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unseen.data.cache import BUILDING, read_if_whole, remove_leftovers, write_json
from unseen.data.datasets.folder import Folder
from unseen.data.prepare import PreparedImages, prepare

SCRIPT = """
import sys
from pathlib import Path
from unseen.data.datasets.folder import Folder
from unseen.data.prepare import prepare

class Held(Folder):
    def decode(self, content, position, side=None):
        if position == 5:
            print("half of the images are read", flush=True)
            sys.stdin.readline()
        return super().decode(content, position, side)

dataset = Held(Held.Config(name="folder"), Path(sys.argv[1]))
print(prepare(dataset, 8).batch(__import__("numpy").arange(12)).sum().item())
"""


def prepared(tree: Path, **values: object) -> PreparedImages:
    return prepare(Folder(Folder.Config.model_validate({"name": "folder", **values}), tree), 8)


def start_and_hold(tree: Path) -> subprocess.Popen[str]:
    """A process that prepares the images, and waits for a line of input after half of them."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SCRIPT, str(tree)]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half of the images are read\n"
    return process


def only_cache(cache: Path) -> Path:
    (folder,) = (cache / "images").iterdir()
    return folder


def test_killed_prepare_is_never_believed_and_cleaned_up(tree: Path, cache: Path) -> None:
    process = start_and_hold(tree)
    process.kill()
    process.communicate()
    assert [path.name.startswith(BUILDING) for path in (cache / "images").iterdir()] == [True]
    images = prepared(tree)
    assert len(images.batch(np.arange(12))) == 12
    assert not only_cache(cache).name.startswith(BUILDING)


def test_two_processes_at_once_both_succeed(tree: Path, cache: Path) -> None:
    processes = [start_and_hold(tree) for _ in range(2)]
    sums = []
    for process in processes:
        output, errors = process.communicate("go on\n")
        assert process.returncode == 0, errors
        sums.append(int(output))
    assert sums[0] == sums[1] == prepared(tree).batch(np.arange(12)).sum().item()
    assert not only_cache(cache).name.startswith(BUILDING)


@pytest.mark.parametrize("form", ["decoded", "encoded"])
@pytest.mark.parametrize("damage", ["cut", "no manifest", "broken manifest", "other version"])
def test_damaged_cache_is_rebuilt(tree: Path, cache: Path, form: str, damage: str) -> None:
    before = prepared(tree, cache=form).batch(np.arange(12))
    folder = only_cache(cache)
    manifest = folder / "manifest.json"
    if damage == "cut":
        os.truncate(folder / "images.bin", 100)
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "broken manifest":
        manifest.write_text(manifest.read_text()[:-20])
    else:
        manifest.write_text(json.dumps(read_if_whole(manifest) | {"version": 0}))
    assert torch.equal(prepared(tree, cache=form).batch(np.arange(12)), before)
    assert only_cache(cache) == folder


def test_a_failing_build_leaves_nothing(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Folder, position: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "content", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepared(tree)
    assert list((cache / "images").iterdir()) == []


def test_builders_at_work_are_left_alone(tmp_path: Path) -> None:
    host = os.uname().nodename
    working = tmp_path / f"{BUILDING}{host}-{os.getpid()}-01234567"
    elsewhere = tmp_path / f"{BUILDING}other-host-4194999-01234567"
    forgotten = tmp_path / f"{BUILDING}other-host-4194999-76543210"
    dead = tmp_path / f"{BUILDING}{host}-4194999-01234567"
    for folder in (working, elsewhere, forgotten, dead):
        folder.mkdir()
    os.utime(forgotten, (1, 1))
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([working, elsewhere])


def test_small_files_are_whole_or_empty(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "roots.json"
    assert read_if_whole(file) == {}
    write_json(file, {"ä": 1})
    assert read_if_whole(file) == {"ä": 1}
    file.write_text("{")
    assert read_if_whole(file) == {}
    file.write_text("[1]")
    assert read_if_whole(file) == {}
    assert os.listdir(file.parent) == ["roots.json"]  # noqa: PTH208
