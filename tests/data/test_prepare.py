"""From files to prepared pixels: what is made anew, what is kept, and what stops it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.conftest import opened, write_image

from unseen.data import decoding
from unseen.data import prepare as preparing
from unseen.data.cache import BUILDING, read_if_whole, remove_leftovers, write_json
from unseen.data.dataset import open_dataset, remember_root
from unseen.data.datasets.folder import Folder
from unseen.data.datasets.published import PACS
from unseen.data.images import to_square
from unseen.data.prepare import PreparedImages, prepare
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings


class CountingFolder(Folder):
    """Counts how often an image is decoded."""

    decoded = 0

    def decode(self, content: bytes, position: int, side: int | None = None) -> Image.Image:
        type(self).decoded += 1
        return super().decode(content, position, side)


@pytest.fixture(autouse=True)
def _reset() -> None:
    CountingFolder.decoded = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of files as they are read."""
    seen: list[int] = []
    content = Folder.content

    def counted(self: Folder, position: int) -> bytes:
        seen.append(position)
        return content(self, position)

    monkeypatch.setattr(Folder, "content", counted)
    return seen


def folder(root: Path, **values: object) -> CountingFolder:
    return CountingFolder(Folder.Config.model_validate({"name": "folder", **values}), root)


def prepared(root: Path, size: int = 8, **values: object) -> PreparedImages:
    return prepare(folder(root, **values), size)


def by_name(images: PreparedImages) -> dict[str, torch.Tensor]:
    batch = images.batch(np.arange(len(images.index)))
    return dict(zip(images.index.names, batch, strict=True))


def caches(cache: Path) -> list[Path]:
    return sorted((cache / "images").iterdir())


def test_decoded_pixels_are_exact_and_channels_last(tree: Path) -> None:
    dataset, seen = folder(tree), list[tuple[str, int, int]]()
    images = prepare(dataset, 8, lambda *step: seen.append(step))
    positions = np.array([7, 0, 7])
    batch = images.batch(positions)
    assert (images.size, images.form, batch.dtype) == (8, "decoded", torch.uint8)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    expected = np.stack([to_square(dataset.read(int(n)), 8) for n in positions])
    assert np.array_equal(batch.permute(0, 2, 3, 1), expected)
    assert seen == [("decoding", 0, 12), ("decoding", 12, 12)]


def test_encoded_is_close_small_and_channels_last(cache: Path) -> None:
    settings = {"name": "digits", "cache": "encoded"}
    encoded, decoded = (
        prepare(open_dataset(DataSettings.model_validate(settings | {"cache": form})), 32)
        for form in ("encoded", "decoded")
    )
    assert (encoded.form, decoded.form) == ("encoded", "decoded")
    assert encoded.content == decoded.content
    positions = np.arange(0, 1797, 50)
    one, two = encoded.batch(positions), decoded.batch(positions)
    assert one.is_contiguous(memory_format=torch.channels_last)
    assert (one.float() - two.float()).abs().mean() < 3
    sizes = sorted(path.stat().st_size for path in cache.glob("images/*/images.bin"))
    assert sizes[0] < sizes[1] / 2


def test_auto_chooses_by_memory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for memory, form in ((2 * 12 * 8 * 8 * 3, "decoded"), (2 * 12 * 8 * 8 * 3 - 1, "encoded")):
        monkeypatch.setattr(preparing, "_memory", lambda memory=memory: memory)
        assert prepared(tree).form == form


CHANGES: dict[str, tuple[Callable[[Path], object], dict[str, object], int, int, bool]] = {
    "another split": (lambda _: 0, {"split_seed": 5, "validation_share": 0.3}, 12, 1, True),
    "touched": (lambda tree: os.utime(tree / "photo/dog/0.png", (1, 1)), {}, 12, 1, True),
    "moved": (lambda tree: tree.rename(tree.with_name("moved")), {}, 12, 1, True),
    "renamed": (
        lambda tree: (tree / "photo/dog/0.png").rename(tree / "photo/dog/9.png"),
        *({}, 12, 2, False),
    ),
    "size": (lambda _: 0, {"size": 9}, 24, 2, True),
    "form": (lambda _: 0, {"cache": "encoded"}, 24, 2, True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_needs_a_new_cache(tree: Path, cache: Path, name: str) -> None:
    change, values, decoded, number, same = CHANGES[name]
    first = prepared(tree)
    change(tree)
    second = prepared(tree if tree.exists() else tree.with_name("moved"), **values)
    assert (CountingFolder.decoded, len(caches(cache))) == (decoded, number)
    assert (first.content == second.content) == same
    if number == 1:
        assert torch.equal(first.batch(np.arange(12)), second.batch(np.arange(12)))


@pytest.mark.parametrize("form", ["decoded", "encoded"])
def test_every_file_is_read_once_and_again_if_it_changed(
    tree: Path, form: str, reads: list[int]
) -> None:
    before = by_name(prepared(tree, cache=form))
    assert sorted(reads) == list(range(12))
    reads.clear()
    prepared(tree, cache=form)
    assert reads == []
    new = {"photo/dog/1.png", "photo/dog/00.png"}
    for number, name in enumerate(new):
        write_image(tree / name, 77 + number)
    (tree / "paint/cat/0.png").unlink()
    after = prepared(tree, cache=form)
    assert {after.index.names[row] for row in reads} == new
    assert CountingFolder.decoded == 12 + 2
    for name, pixels in by_name(after).items():
        assert (name in before and torch.equal(pixels, before[name])) == (name not in new)
    if form == "decoded":
        with Image.open(tree / "photo/dog/1.png") as image:
            expected = to_square(image, 8)
        assert np.array_equal(by_name(after)["photo/dog/1.png"].permute(1, 2, 0), expected)


def test_bad_images_stop_with_all_names_or_are_left_out(tree: Path, cache: Path) -> None:
    expected = by_name(prepared(tree))
    (tree / "photo/dog/1.png").write_bytes((tree / "photo/dog/1.png").read_bytes()[:100])
    (tree / "paint/cat/2.png").write_text("no image")
    bad = ("paint/cat/2.png", "photo/dog/1.png")
    problems = "".join(rf"\n  {name} is not a readable image[^\n]*" for name in bad)
    message = rf"2 images cannot be used:{problems}\n.*data\.bad_images=skip"
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            prepared(tree)
        assert len(caches(cache)) == 1
    for _ in range(2):
        images = prepared(tree, bad_images="skip")
        assert images.left_out == bad
        assert images.index.count_classes()["paint"] == {"cat": 2, "dog": 3}
        found = by_name(images)
        assert found.keys() == expected.keys() - set(bad)
        assert all(torch.equal(pixels, expected[name]) for name, pixels in found.items())
    with pytest.raises(DataError, match=message):
        prepared(tree)
    for number in range(25):
        (tree / "photo/dog" / f"bad{number}.png").touch()
    with pytest.raises(DataError, match=r"27 images cannot be used[^$]*\.\.\. and 7 more"):
        prepared(tree)
    for path in tree.rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(DataError, match="not one of 37 images is readable"):
        prepared(tree, bad_images="skip")


def test_a_file_that_vanished_after_indexing_is_named(tree: Path) -> None:
    dataset = folder(tree)
    dataset.index()
    (tree / "photo/dog/1.png").unlink()
    with pytest.raises(DataError, match=r"photo/dog/1\.png cannot be read from .*: No such file"):
        prepare(dataset, 8)


def test_no_room_on_the_disk(tree: Path) -> None:
    with pytest.raises(DataError, match=r"needs .* GB and .* left; set UNSEEN_CACHE"):
        prepared(tree, 4_000_000, cache="decoded")


def test_roots_in_order(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DataSettings.model_validate({"name": "pacs"})
    with pytest.raises(DataError, match=r"unseen prepare pacs --root DIR.*data\.root=DIR"):
        open_dataset(settings)
    (tmp_path / "shared" / "PACS").mkdir(parents=True)
    monkeypatch.setenv("UNSEEN_DATA", str(tmp_path / "shared"))
    found = open_dataset(settings)
    assert isinstance(found, PACS)
    assert found.root == tmp_path / "shared" / "PACS"
    assert open_dataset(DataSettings(name="mnist_m")).root == tmp_path / "shared"
    remember_root("pacs", tree)
    remember_root("folder", tree / "photo")
    assert open_dataset(settings).root == tree
    given = settings.model_copy(update={"root": tmp_path})
    assert open_dataset(given).root == tmp_path
    tree.rename(tmp_path / "gone")
    assert open_dataset(settings).root == tmp_path / "shared" / "PACS"
    monkeypatch.delenv("UNSEEN_DATA")
    with pytest.raises(DataError, match=r"it was in .*, which no longer exists"):
        open_dataset(settings)
    assert open_dataset(DataSettings.model_validate({"name": "digits"})).root is None


# indexes that are kept


@pytest.fixture
def settled(tree: Path) -> Path:
    """As if nobody had touched the folders for a while."""
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (10**9, 10**9))
    return tree


def test_of_many_images_only_folders_are_looked_at(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "FEW", 11)
    first = prepared(settled)
    with monkeypatch.context() as patch:
        for looked in ("find", "signature"):
            patch.setattr(Folder, looked, lambda *_: pytest.fail("was looked at"))
        again = prepared(settled)
    assert (again.content, again.index.names) == (first.content, first.index.names)
    assert again.index.splits.tolist() == first.index.splits.tolist()
    assert folder(settled).path(0) == settled / first.index.names[0]
    write_image(settled / "photo/dog/new.png", 50)
    os.utime(settled / "photo/dog", (10**9, 10**9 + 1))
    more = prepared(settled)
    assert len(more.index) == 13
    write_image(settled / "photo/dog/new.png", 51)  # in place: the folder stays as it was
    assert prepared(settled).content == more.content
    assert prepare(folder(settled), 8, every_file=True).content != more.content


@pytest.mark.parametrize("change", ["a new list", "a new class folder", "another setting"])
def test_an_index_is_made_anew_when_something_changed(settled: Path, change: str) -> None:
    lines = [f"{c}/{n}.png,{c},photo" for c in ("cat", "dog") for n in range(3)]
    listed = settled / "photo" / "list.csv"
    listed.write_text("\n".join(["path,class,domain", *lines]))
    os.utime(listed, (10**9, 10**9))
    os.utime(settled / "photo", (10**9, 10**9))
    before = opened("manifest", listed).index()
    assert opened("manifest", listed).index().names == before.names
    if change == "another setting":
        assert opened("manifest", listed, classes={"dog": None}).index().classes == ("cat",)
    elif change == "a new list":
        listed.write_text("\n".join(["path,class,domain", *lines[:-1]]))
        assert len(opened("manifest", listed).index()) == 5
    else:
        whole = folder(settled).index()
        (settled / "photo" / "empty").mkdir()
        assert len(folder(settled).index().remarks) == len(whole.remarks) + 1
    (settled / "photo/cat/0.png").unlink()
    with pytest.raises(DataError, match="no file"):
        opened("manifest", listed).index()


def test_a_folder_that_changed_just_now_may_change_again_unnoticed(tree: Path) -> None:
    """Two changes within one tick of the file system's clock leave the same time."""
    folder(tree).index()
    time = (tree / "photo/dog").stat().st_mtime_ns
    (tree / "photo/dog/3.png").touch()
    os.utime(tree / "photo/dog", ns=(time, time))
    assert len(folder(tree).index()) == 13


def test_large_photographs_are_decoded_scaled(tmp_path: Path) -> None:
    """Next to what resizing the whole photograph gives; smaller ones are not touched."""
    y, x = np.mgrid[:600, :800]
    waves = [127 + 120 * np.sin(x / a + y / b) for a, b in ((17, 40), (31, -23), (90, 11))]
    picture = Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))
    (tmp_path / "a" / "waves").mkdir(parents=True)
    for side, name in ((600, "large"), (150, "small")):
        file = tmp_path / "a" / "waves" / f"{name}.jpg"
        picture.resize((side * 4 // 3, side)).save(file, quality=95)
    dataset = folder(tmp_path)
    large, small = prepare(dataset, 64).batch(np.arange(2)).permute(0, 2, 3, 1).numpy().astype(int)
    assert np.array_equal(small, to_square(dataset.read(1), 64))
    assert dataset.decode(dataset.content(0), 0, 64).size == (200, 150)
    assert 0 < np.abs(large - to_square(dataset.read(0), 64)).mean() < 1


# shards


def kept_bytes(cache: Path) -> dict[str, bytes]:
    files = (file for file in cache.glob("images/*/*") if file.suffix in (".bin", ".npy", ".json"))
    return {file.relative_to(cache).as_posix(): file.read_bytes() for file in files}


@pytest.mark.parametrize("form", ["decoded", "encoded"])
def test_shards_have_the_bytes_of_one_process_and_are_resumed_after_a_kill(
    tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tree / "photo/dog/1.png").write_bytes(b"no image")
    (tree / "photo/cat/0.png").unlink()
    (tree / "photo/cat/0.png").mkdir()  # cannot even be read
    (tree / "photo/cat/0.png/a.png").write_bytes((tree / "photo/cat/1.png").read_bytes())
    settings = {"cache": form, "bad_images": "skip"}
    prepared(tree, **settings)
    alone = kept_bytes(cache)
    assert alone
    monkeypatch.setenv("UNSEEN_CACHE", str(cache.with_name("other")))
    monkeypatch.setattr(decoding, "SHARD_BYTES", 5 * 8 * 8 * 3)
    rows = list[range]()

    def workers(work, shards: Iterable[decoding.Shard]) -> Iterator[None]:
        for shard in shards:
            if len(rows) == 2:
                rows.clear()
                raise KeyboardInterrupt
            rows.append(shard.rows)
            yield work(shard)

    with pytest.raises(KeyboardInterrupt):
        prepare(folder(tree, **settings), 8, workers=workers)
    prepare(folder(tree, **settings), 8, workers=workers)
    assert rows == [range(10, 12)]
    assert kept_bytes(cache.with_name("other")) == alone
    assert not list(cache.with_name("other").glob("images/.*"))


def test_machines_that_see_other_files_are_refused(tree: Path) -> None:
    def workers(work, shards: Iterable[decoding.Shard]) -> Iterator[None]:
        write_image(tree / "photo/cat/00.png", 7)
        return map(work, shards)

    with pytest.raises(DataError, match="has other files here than where the command was given"):
        prepare(folder(tree), 8, workers=workers)
    with pytest.raises(DataError, match="all machines need one cache; set UNSEEN_CACHE"):
        prepare(folder(tree), 8, workers=lambda work, shards: (None for _ in shards))


# the cache on disk

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


def start_and_hold(tree: Path) -> subprocess.Popen[str]:
    """A process that prepares the images, and waits for a line of input after half of them."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SCRIPT, str(tree)]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half of the images are read\n"
    return process


def test_of_two_processes_at_once_both_succeed_and_a_killed_one_is_never_believed(
    tree: Path, cache: Path
) -> None:
    killed, *processes = [start_and_hold(tree) for _ in range(3)]
    killed.kill()
    killed.communicate()
    assert all(path.name.startswith(BUILDING) for path in caches(cache))
    sums = []
    for process in processes:
        output, errors = process.communicate("go on\n")
        assert process.returncode == 0, errors
        sums.append(int(output))
    assert sums[0] == sums[1] == prepared(tree).batch(np.arange(12)).sum().item()
    (whole,) = caches(cache)
    assert not whole.name.startswith(BUILDING)


@pytest.mark.parametrize("form", ["decoded", "encoded"])
@pytest.mark.parametrize("damage", ["cut", "no manifest", "broken manifest", "other version"])
def test_a_damaged_cache_is_made_again(tree: Path, cache: Path, form: str, damage: str) -> None:
    before = prepared(tree, cache=form).batch(np.arange(12))
    (whole,) = caches(cache)
    manifest = whole / "manifest.json"
    if damage == "cut":
        os.truncate(whole / "images.bin", 100)
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "broken manifest":
        manifest.write_text(manifest.read_text()[:-20])
    else:
        manifest.write_text(json.dumps(read_if_whole(manifest) | {"version": 0}))
    assert torch.equal(prepared(tree, cache=form).batch(np.arange(12)), before)
    assert caches(cache) == [whole]


def test_builders_at_work_are_left_alone(tmp_path: Path) -> None:
    host = os.uname().nodename
    working = tmp_path / f"{BUILDING}{host}-{os.getpid()}-01234567"
    elsewhere = tmp_path / f"{BUILDING}other-host-4194999-01234567"
    forgotten = tmp_path / f"{BUILDING}other-host-4194999-76543210"
    dead = tmp_path / f"{BUILDING}{host}-4194999-01234567"
    for builder in (working, elsewhere, forgotten, dead):
        builder.mkdir()
    os.utime(forgotten, (1, 1))
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([working, elsewhere])


def test_small_files_are_whole_or_empty(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "roots.json"
    assert read_if_whole(file) == {}
    write_json(file, {"ä": 1})
    assert read_if_whole(file) == {"ä": 1}
    for damaged in ("{", "[1]"):
        file.write_text(damaged)
        assert read_if_whole(file) == {}
    assert [path.name for path in file.parent.iterdir()] == ["roots.json"]
