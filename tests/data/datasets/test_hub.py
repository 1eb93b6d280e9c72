"""Parquet files of both layouts, from a folder and from a stand-in for the Hub."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from PIL import Image
from tests.data.conftest import contents
from tests.data.server import HubServer

from unseen.data.cache import cache_folder
from unseen.data.dataset import open_dataset, remember_root
from unseen.data.datasets.hub import Hub
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.errors import DataError
from unseen.settings.experiment import Experiment, identity
from unseen.settings.recipes import load_experiment

CLASSES = ("zebra", "ant")
FEATURES = {"image": {"_type": "Image"}, "label": {"names": CLASSES, "_type": "ClassLabel"}}
NOTE = {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode()}


def png(number: int, side: int = 8) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def write(
    file: Path,
    images: list[Any],
    note: bool = True,
    row_group_size: int | None = None,
    **columns: list[Any],
) -> Path:
    n = len(images)
    values: dict[str, list[Any]] = {
        "image": images,
        "label": [number % 2 for number in range(n)],
        "domain": [("photo", "sketch")[number // 2 % 2] for number in range(n)],
    }
    table = arrow.table(values | columns)
    file.parent.mkdir(parents=True, exist_ok=True)
    noted = table.replace_schema_metadata(NOTE if note else None)
    parquet.write_table(noted, file, row_group_size=row_group_size)
    return file


def embedded(numbers: range) -> list[Any]:
    return [{"bytes": png(number), "path": f"{number}.png"} for number in numbers]


def hub(root: Path | str, **values: object) -> Hub:
    settings = Hub.Config.model_validate({"name": "hub", "root": root, **values})
    dataset = open_dataset(settings)
    assert isinstance(dataset, Hub)
    return dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "parquet"
    write(root / "data" / "train-00000-of-00002.parquet", embedded(range(12)))
    write(root / "data" / "train-00001-of-00002.parquet", embedded(range(12, 20)))
    write(root / "data" / "test-00000-of-00001.parquet", embedded(range(20, 28)))
    return root


def test_images_as_bytes(folder: Path) -> None:
    dataset = hub(folder)
    index = dataset.index()
    assert index.classes == CLASSES  # in the order of the file, not of the alphabet
    assert index.domains == ("photo", "sketch")
    assert len(index) == 28
    assert index.names[8] == "data/train-00000-of-00002/000000"
    order = [*range(20, 28), *range(20)]
    assert contents(dataset) == [png(number) for number in order]
    assert index.official_test
    assert set(index.splits[:8]) == {Split.TEST}
    assert Split.TEST not in set(index.splits[8:])
    assert prepare(dataset, 8).left_out == ()


@pytest.mark.parametrize("form", ["column of paths", "paths in a struct", "column of bytes"])
def test_other_forms_of_the_same_images(folder: Path, tmp_path: Path, form: str) -> None:
    root = tmp_path / "other"
    for number in range(28):
        (root / "pictures").mkdir(parents=True, exist_ok=True)
        (root / "pictures" / f"{number}.png").write_bytes(png(number))
    for file in sorted(folder.rglob("*.parquet")):
        rows = parquet.read_table(file).to_pydict()
        paths = [f"pictures/{image['path']}" for image in rows["image"]]
        images: list[Any] = {
            "column of paths": paths,
            "paths in a struct": [{"bytes": None, "path": path} for path in paths],
            "column of bytes": [image["bytes"] for image in rows["image"]],
        }[form]
        write(root / file.relative_to(folder), images)
    dataset = hub(root)
    assert contents(dataset) == contents(hub(folder))
    assert dataset.index().labels.tolist() == hub(folder).index().labels.tolist()
    before = dataset.signature(3)
    (root / "pictures" / "23.png").write_bytes(png(99, side=9))
    assert (hub(root).signature(3) != before) == (form != "column of bytes")


def test_rows_in_any_order_and_from_many_threads(tmp_path: Path) -> None:
    images = [{"bytes": b"%05d" % number, "path": None} for number in range(1000)]
    write(tmp_path / "a.parquet", images[:600])
    write(tmp_path / "b.parquet", images[600:])
    dataset = hub(tmp_path)
    for position in (0, 999, 5, 400, 130, 601, 600, 599):
        assert dataset.content(position) == b"%05d" % position
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(dataset.content, range(1000)))
    assert found == [image["bytes"] for image in images]


def test_names_without_a_note(tmp_path: Path) -> None:
    styles = ["ink", "oil"] * 6
    write(tmp_path / "a.parquet", embedded(range(12)), note=False, label=[10, 9] * 6, style=styles)
    index = hub(tmp_path, domain_column="style").index()
    assert index.classes == ("9", "10")
    assert index.domains == ("ink", "oil")
    assert not index.official_test


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        (
            {},
            {"domain_column": "domains"},
            r"no column 'domains'; did you mean 'domain'\? \(found:",
        ),
        ({}, {"image_column": "img"}, r"no column 'img'.*set data\.image_column"),
        ({"label": [0, 1, None, 1]}, {}, "1 of 4 rows have no label"),
        ({"label": [0, 1, -1, 1]}, {}, "1 of 4 rows have no label"),
        ({"label": [0, 1, 7, 1]}, {}, "'label' holds values without a name: 7"),
        ({}, {"files": "photos/*.parquet"}, r"no files that match photos/\*\.parquet in"),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path, columns: dict[str, list[Any]], values: dict[str, Any], message: str
) -> None:
    write(tmp_path / "a.parquet", embedded(range(4)), **columns)
    with pytest.raises(DataError, match=message):
        hub(tmp_path, **values).index()


def test_damaged_files_and_images(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [*embedded(range(3)), {"bytes": b"x", "path": None}])
    with pytest.raises(DataError, match=r"1 images cannot be used:\n +a/000003 is not a readable"):
        prepare(hub(tmp_path), 8)
    write(tmp_path / "a.parquet", [*embedded(range(3)), None])
    with pytest.raises(DataError, match=r"a/000003 has no image in the column 'image'"):
        prepare(hub(tmp_path), 8)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"a\.parquet is not a readable Parquet file"):
        hub(tmp_path).index()


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "a/../../secret.png"])
def test_paths_may_not_lead_outside(tmp_path: Path, path: str) -> None:
    write(tmp_path / "data" / "a.parquet", [path] * 4)
    (tmp_path / "secret.png").write_bytes(png(0))
    with pytest.raises(DataError, match="which leads out of"):
        hub(tmp_path / "data").content(0)


def test_a_name_is_remembered_and_is_the_same_run_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> Experiment:
        return load_experiment("hub/aggregate", {"data.root": "owner/name"})

    first = identity(run())
    monkeypatch.chdir(tmp_path)
    assert identity(run()) == first
    remember_root("hub", Path("owner/name"))
    dataset = open_dataset(load_experiment("hub/aggregate").data)
    assert dataset.root == Path("owner/name")


@pytest.fixture
def hub_server(tmp_path: Path) -> Iterator[HubServer]:
    server = HubServer(tmp_path / "hub_home")
    yield server
    server.stop()


def test_from_the_hub(folder: Path, hub_server: HubServer) -> None:
    """Whole, once: the second time nothing but the listing is asked for."""
    hub_server.folders["owner/animals"] = folder
    [answer] = hub_server.read("owner/animals")
    assert answer["contents"] == [len(data) for data in contents(hub(folder))]
    assert answer["classes"] == list(CLASSES)
    hub_server.asked.clear()
    assert hub_server.read("owner/animals") == [answer]
    assert not any("/resolve/" in path and method == "GET" for method, path in hub_server.asked)


def test_a_broken_connection_is_continued(folder: Path, hub_server: HubServer) -> None:
    hub_server.folders["owner/animals"] = folder
    hub_server.most = 900
    [answer] = hub_server.read("owner/animals")
    assert "contents" in answer or "did not arrive" in answer["error"]
    hub_server.most = None
    [answer] = hub_server.read("owner/animals")
    assert len(answer["contents"]) == 28


def test_without_the_hub(folder: Path, hub_server: HubServer) -> None:
    hub_server.folders["owner/animals"] = folder
    unknown, whole = hub_server.read("owner/nothing", "owner/animals")
    assert "no dataset of that name on the Hub" in unknown["error"]
    hub_server.stop()
    again, other = hub_server.read("owner/animals", "owner/others")
    assert again == whole  # what is here is used
    assert "is not here yet; connect this" in other["error"]
    assert cache_folder().is_dir()


READ_ALL = """
import re, sys
from pathlib import Path
from unseen.data.datasets.hub import Hub
from unseen.data.dataset import open_dataset
from unseen.data.prepare import prepare

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

first = []
def report(stage, done, total):
    if done >= 1000 and not first:
        first.append(peak())

dataset = open_dataset(Hub.Config(name="hub", root=sys.argv[1]))
prepared = prepare(dataset, 16, report)
print(len(prepared.index), peak() - first[0])
"""
LARGE, SIDE, FLAT = 6_000, 64, 32
"""Images, their side in pixels, and the megabytes by which reading them may grow."""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's /proc")
def test_memory_stays_flat_over_thousands_of_images(tmp_path: Path) -> None:
    """From the first thousand to the last: checked, decoded and cached, a few at a time."""
    root = tmp_path / "many"
    few = [png(number, SIDE) for number in range(50)]  # different bytes: a number follows each
    numbers = (number.to_bytes(4, "big") for number in range(LARGE))
    images = [{"bytes": few[n % len(few)] + end, "path": None} for n, end in enumerate(numbers)]
    assert LARGE * len(few[0]) > 2 * FLAT * 2**20  # all of them at once would be seen
    write(root / "train.parquet", images, row_group_size=100)
    del images
    environment = os.environ | {
        "UNSEEN_CACHE": str(tmp_path / "cache"),
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # gives back what it no longer uses
        "MALLOC_ARENA_MAX": "2",
    }
    command = [sys.executable, "-c", READ_ALL, str(root)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    number, growth = done.stdout.split()
    assert int(number) == LARGE
    assert float(growth) < FLAT, f"{growth} MB"
