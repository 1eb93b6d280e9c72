"""The offline file of Weights & Biases, decoded with the messages that its package defines."""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from tests.reports.trackers.outcomes import final_accuracy

from unseen.results.folder import RunFolder

pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")

_BLOCK, _HEADER = 32768, 7


def offline_runs(folder: RunFolder) -> list[Path]:
    """Folders, oldest first; the process that writes them is done when it is torn down."""
    import wandb

    wandb.teardown()
    return sorted((folder.path.parent / "wandb").glob("offline-run-*"))


def records(file: Path) -> Iterator:
    """A .wandb file is a LevelDB log: blocks of chunks, each with checksum, length and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    place, parts = _HEADER, b""
    while place < len(data):
        if _BLOCK - place % _BLOCK < _HEADER:
            place += _BLOCK - place % _BLOCK
            continue
        length = int.from_bytes(data[place + 4 : place + 6], "little")
        kind = data[place + 6]
        chunk = data[place + _HEADER : place + _HEADER + length]
        checksum = int.from_bytes(data[place : place + 4], "little")
        assert checksum == zlib.crc32(data[place + 6 : place + 7] + chunk)
        parts += chunk
        place += _HEADER + length
        if kind in (1, 4):  # a record of its own, or the last part of one
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def history(run: Path) -> dict[str, dict[int, object]]:
    found: dict[str, dict[int, object]] = {}
    (file,) = run.glob("*.wandb")
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            step = items["_step"]
            for name, value in items.items():
                if not name.startswith("_"):
                    assert step not in found.setdefault(name, {})
                    found[name][step] = value
    return found


def assert_complete(folder: RunFolder, run: Path, recorded: Callable) -> None:
    found = history(run)
    expected = recorded(folder)
    apart = {name: found.pop(name) for name in list(found) if name not in expected}
    assert found == expected
    accuracy = apart["final/out_of_domain/outlines/accuracy"]
    assert accuracy == {6: final_accuracy(folder)}
    assert apart["result/_type"] == {6: "table-file"}
    assert apart["confusion-outlines/_type"] == {6: "image-file"}


def test_without_a_key_everything_is_kept_for_later(
    tmp_path: Path, run_with: Callable, recorded: Callable
) -> None:
    folder = run_with(tmp_path, ["wandb"])
    (run,) = offline_runs(folder)
    assert_complete(folder, run, recorded)
    (file,) = run.glob("*.wandb")
    (about,) = (r.run for r in records(file) if r.WhichOneof("record_type") == "run")
    identity = folder.read_result().run
    assert (about.run_id, about.project, about.display_name) == (
        identity,
        "unseen",
        folder.path.name,
    )
    config = {item.key: json.loads(item.value_json) for item in about.config.update}
    assert config["method"]["name"] == "dmg"
    (table,) = (run / "files" / "media" / "table").glob("result_*.json")
    rows = json.loads(table.read_text(encoding="utf-8"))["data"]
    assert ["out_of_domain", "outlines", f"{final_accuracy(folder):.1%}"] in [r[:3] for r in rows]
    (picture,) = (run / "files" / "media" / "images").glob("confusion-outlines_*.png")
    with Image.open(picture) as image:
        assert image.size == (450, 378)


def test_a_crashed_run_is_continued(
    tmp_path: Path, run_with: Callable, crash_once: Callable, recorded: Callable
) -> None:
    """Under the same id; the newest folder holds the whole run."""
    crash_once(tmp_path, ["wandb"])
    folder = run_with(tmp_path, ["wandb"])
    first, second = offline_runs(folder)
    assert set(history(first)["train/loss"]) == {1, 2, 3, 4}
    assert_complete(folder, second, recorded)
    ids = [run.name.split("-")[3] for run in (first, second)]  # within a second a number follows
    assert ids == [folder.read_result().run] * 2
