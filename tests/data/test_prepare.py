import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.data import decoding
from unseen.data import prepare as preparing
from unseen.data.dataset import open_dataset, remember_root
from unseen.data.datasets.digits import Digits
from unseen.data.datasets.folder import Folder, Manifest
from unseen.data.datasets.published import PACS
from unseen.data.images import to_square
from unseen.data.index import Index
from unseen.data.prepare import prepare
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


def folder(root: Path, **values: object) -> CountingFolder:
    return CountingFolder(Folder.Config.model_validate({"name": "folder", **values}), root)


def caches(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "images").iterdir())


def test_decoded_pixels_are_exact_and_channels_last(tree: Path) -> None:
    dataset = folder(tree)
    prepared = prepare(dataset, 8)
    positions = np.array([7, 0, 7])
    batch = prepared.batch(positions)
    assert (prepared.size, prepared.form) == (8, "decoded")
    assert batch.shape == (3, 3, 8, 8)
    assert batch.dtype == torch.uint8
    assert batch.is_contiguous(memory_format=torch.channels_last)
    for image, position in zip(batch, positions, strict=True):
        expected = to_square(dataset.read(int(position)), 8)
        assert np.array_equal(image.permute(1, 2, 0).numpy(), expected)


def test_encoded_is_close_small_and_channels_last(cache: Path) -> None:
    settings = Digits.Config.model_validate({"name": "digits", "cache": "encoded"})
    encoded = prepare(Digits(settings, None), 32)
    decoded = prepare(Digits(settings.model_copy(update={"cache": "decoded"}), None), 32)
    assert (encoded.form, decoded.form) == ("encoded", "decoded")
    assert encoded.content == decoded.content
    positions = np.arange(0, 1797, 50)
    one, two = encoded.batch(positions), decoded.batch(positions)
    assert one.is_contiguous(memory_format=torch.channels_last)
    assert (one.float() - two.float()).abs().mean() < 3
    sizes = sorted(path.stat().st_size for path in cache.glob("images/*/images.bin"))
    assert sizes[0] < sizes[1] / 2


def test_auto_chooses_by_memory(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = 12 * 8 * 8 * 3
    monkeypatch.setattr(preparing, "_memory", lambda: 2 * needed)
    assert prepare(folder(tree), 8).form == "decoded"
    monkeypatch.setattr(preparing, "_memory", lambda: 2 * needed - 1)
    assert prepare(folder(tree), 8).form == "encoded"


def test_second_time_decodes_nothing_and_touching_neither(tree: Path, cache: Path) -> None:
    first = prepare(folder(tree), 8)
    assert CountingFolder.decoded == 12
    os.utime(tree / "photo/dog/0.png", (1, 1))
    second = prepare(folder(tree, split_seed=5, validation_share=0.3), 8)
    assert CountingFolder.decoded == 12
    assert second.content == first.content
    assert len(caches(cache)) == 1
    assert torch.equal(first.batch(np.arange(12)), second.batch(np.arange(12)))


def test_unchanged_files_are_not_even_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(folder(tree), 8)
    monkeypatch.setattr(Folder, "content", lambda self, position: pytest.fail("was read"))
    assert prepare(folder(tree), 8).content == first.content


def test_changed_content_size_or_form_is_a_new_cache(
    tree: Path, cache: Path, write_image: Callable[..., Path]
) -> None:
    first = prepare(folder(tree), 8)
    write_image(tree / "photo/dog/0.png", 99)
    second = prepare(folder(tree), 8)
    assert first.content != second.content
    position = second.index.names.index("photo/dog/0.png")
    with Image.open(tree / "photo/dog/0.png") as image:
        expected = to_square(image, 8)
    assert np.array_equal(second.batch(np.array([position]))[0].permute(1, 2, 0), expected)
    prepare(folder(tree), 9)
    prepare(folder(tree, cache="encoded"), 8)
    assert len(caches(cache)) == 4


def test_a_renamed_file_is_a_new_cache(tree: Path) -> None:
    first = prepare(folder(tree), 8)
    (tree / "photo/dog/0.png").rename(tree / "photo/dog/9.png")
    assert prepare(folder(tree), 8).content != first.content


def test_a_moved_dataset_keeps_its_cache(tree: Path, cache: Path) -> None:
    prepare(folder(tree), 8)
    moved = tree.rename(tree.with_name("moved"))
    prepare(folder(moved), 8)
    assert CountingFolder.decoded == 12
    assert len(caches(cache)) == 1


def test_bad_images_stop_with_all_names_and_leave_nothing(tree: Path, cache: Path) -> None:
    (tree / "photo/dog/1.png").write_bytes((tree / "photo/dog/1.png").read_bytes()[:100])
    (tree / "paint/cat/2.png").write_text("no image")
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            prepare(folder(tree), 8)
        text = str(caught.value)
        assert "2 images cannot be used" in text
        assert "photo/dog/1.png is not a readable image" in text
        assert "paint/cat/2.png is not a readable image" in text
        assert "data.bad_images=skip" in text
        assert caches(cache) == []


def test_bad_images_can_be_left_out(tree: Path) -> None:
    (tree / "paint/cat/2.png").write_text("no image")
    for _ in range(2):
        prepared = prepare(folder(tree, bad_images="skip"), 8)
        assert prepared.left_out == ("paint/cat/2.png",)
        assert len(prepared.index) == 11
        position = prepared.index.names.index("photo/dog/2.png")
        with Image.open(tree / "photo/dog/2.png") as image:
            expected = to_square(image, 8)
        assert np.array_equal(prepared.batch(np.array([position]))[0].permute(1, 2, 0), expected)
    with pytest.raises(DataError, match=r"paint/cat/2\.png is not a readable image"):
        prepare(folder(tree), 8)


def test_long_lists_of_bad_images_are_cut(tree: Path) -> None:
    for number in range(25):
        (tree / "photo/dog" / f"bad{number}.png").touch()
    with pytest.raises(DataError, match=r"25 images cannot be used[^$]*\.\.\. and 5 more"):
        prepare(folder(tree), 8)


def test_not_one_readable_image(tree: Path) -> None:
    for path in tree.rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(DataError, match="not one of 12 images is readable"):
        prepare(folder(tree, bad_images="skip"), 8)


def test_a_file_that_vanished_after_indexing_is_named(tree: Path) -> None:
    dataset = folder(tree)
    dataset.index()
    (tree / "photo/dog/1.png").unlink()
    with pytest.raises(DataError, match=r"photo/dog/1\.png cannot be read from .*: No such file"):
        prepare(dataset, 8)


def test_progress_reaches_the_end(tree: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    prepare(folder(tree), 8, lambda *step: seen.append(step))
    assert seen == [("decoding", 0, 12), ("decoding", 12, 12)]


def test_no_room_on_the_disk(tree: Path) -> None:
    with pytest.raises(DataError, match=r"needs .* GB and .* left; set UNSEEN_CACHE"):
        prepare(folder(tree, cache="decoded"), 4_000_000)


def test_counts_and_remarks(tree: Path) -> None:
    (tree / "paint/cat/2.png").write_text("no image")
    (tree / "photo/stray.png").touch()
    settings = {"bad_images": "skip", "validation_share": 0, "test_share": 0}
    prepared = prepare(folder(tree, **settings), 8)
    index = prepared.index
    assert index.count_classes() == {"paint": {"cat": 2, "dog": 3}, "photo": {"cat": 3, "dog": 3}}
    assert index.count_splits()["paint"] == {"train": 5, "validation": 0, "test": 0, "unseen": 0}
    assert prepared.left_out == ("paint/cat/2.png",)
    assert index.remarks == ("in no class folder, and not used: photo/stray.png",)


def test_roots_in_order(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DataSettings.model_validate({"name": "pacs"})
    with pytest.raises(DataError, match=r"unseen prepare pacs --root DIR.*data\.root=DIR"):
        open_dataset(settings)
    (tmp_path / "shared" / "PACS").mkdir(parents=True)
    monkeypatch.setenv("UNSEEN_DATA", str(tmp_path / "shared"))
    found = open_dataset(settings)
    assert isinstance(found, PACS)
    assert found.root == tmp_path / "shared" / "PACS"
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


def test_open_dataset_needs_no_root_for_digits_and_takes_own_settings(tree: Path) -> None:
    assert open_dataset(DataSettings.model_validate({"name": "digits"})).root is None
    config = Folder.Config.model_validate(
        {"name": "folder", "root": tree, "classes": {"dog": "hound"}}
    )
    assert open_dataset(config).index().classes == ("cat", "hound")


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions of files as they are read."""
    seen: list[int] = []
    content = Folder.content

    def counted(self: Folder, position: int) -> bytes:
        seen.append(position)
        return content(self, position)

    monkeypatch.setattr(Folder, "content", counted)
    return seen


def test_a_cold_cache_reads_every_file_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reads(monkeypatch)
    prepare(folder(tree), 8)
    assert sorted(seen) == list(range(12))


@pytest.mark.parametrize("form", ["decoded", "encoded"])
def test_what_did_not_change_is_neither_read_nor_decoded_again(
    tree: Path, form: str, write_image: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare(folder(tree, cache=form), 8)
    write_image(tree / "photo/dog/1.png", 77)
    write_image(tree / "photo/dog/00.png", 78)
    (tree / "paint/cat/0.png").unlink()
    seen = reads(monkeypatch)
    after = prepare(folder(tree, cache=form), 8)
    assert {after.index.names[row] for row in seen} == {"photo/dog/1.png", "photo/dog/00.png"}
    assert CountingFolder.decoded == 12 + 2
    old = {name: before.batch(np.array([row])) for row, name in enumerate(before.index.names)}
    for row, name in enumerate(after.index.names):
        same = name in old and torch.equal(after.batch(np.array([row])), old[name])
        assert same == (name not in ("photo/dog/1.png", "photo/dog/00.png"))


@pytest.fixture
def settled(tree: Path) -> Path:
    """As if nobody had touched the folders for a while."""
    for path in [tree, *tree.rglob("*")]:
        os.utime(path, (10**9, 10**9))
    return tree


def test_of_many_images_only_folders_are_looked_at(
    settled: Path, write_image: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "FEW", 11)
    first = prepare(folder(settled), 8)

    def never(*_: object) -> None:
        pytest.fail("was looked at")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "find", never)
        patch.setattr(Folder, "signature", never)
        again = prepare(folder(settled), 8)
    assert again.content == first.content
    assert again.index.names == first.index.names
    assert again.index.splits.tolist() == first.index.splits.tolist()
    assert folder(settled).path(0) == settled / first.index.names[0]
    write_image(settled / "photo/dog/new.png", 50)
    os.utime(settled / "photo/dog", (10**9, 10**9 + 1))
    more = prepare(folder(settled), 8)
    assert len(more.index) == 13
    write_image(settled / "photo/dog/new.png", 51)  # in place: the folder stays as it was
    assert prepare(folder(settled), 8).content == more.content
    assert prepare(folder(settled), 8, every_file=True).content != more.content


@pytest.mark.parametrize("change", ["a new list", "a new class folder", "another setting"])
def test_an_index_is_made_anew_when_something_changed(settled: Path, change: str) -> None:
    lines = [f"{c}/{n}.png,{c},photo" for c in ("cat", "dog") for n in range(3)]
    listed = settled / "photo" / "list.csv"
    listed.write_text("\n".join(["path,class,domain", *lines]))
    os.utime(listed, (10**9, 10**9))
    os.utime(settled / "photo", (10**9, 10**9))

    def index(**values: object) -> Index:
        config = {"name": "manifest", "root": listed, **values}
        return open_dataset(Manifest.Config.model_validate(config)).index()

    before = index()
    assert index().names == before.names
    if change == "another setting":
        assert index(classes={"dog": None}).classes == ("cat",)
    elif change == "a new list":
        listed.write_text("\n".join(["path,class,domain", *lines[:-1]]))
        assert len(index()) == 5
    else:
        whole = folder(settled).index()
        (settled / "photo" / "empty").mkdir()
        assert len(folder(settled).index().remarks) == len(whole.remarks) + 1
    (settled / "photo/cat/0.png").unlink()
    with pytest.raises(DataError, match="no file"):
        index()


def test_a_folder_that_changed_just_now_may_change_again_unnoticed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    for domain in "ab":
        for side, name in ((600, "large"), (150, "small")):
            file = tmp_path / domain / "waves" / f"{name}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))
            picture.resize((side * 4 // 3, side)).save(file, quality=95)
    dataset = folder(tmp_path, validation_share=0, test_share=0)
    found = prepare(dataset, 64).batch(np.arange(4)).permute(0, 2, 3, 1).numpy().astype(int)
    for row in range(4):
        whole = to_square(dataset.read(row), 64).astype(int)
        difference = np.abs(found[row] - whole)
        if "small" in dataset.index().names[row]:
            assert difference.max() == 0
        else:
            assert dataset.decode(dataset.content(row), row, 64).size == (200, 150)
            assert 0 < difference.mean() < 1


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
    prepare(folder(tree, **settings), 8)
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


def test_machines_that_see_other_files_are_refused(
    tree: Path, write_image: Callable[..., Path]
) -> None:
    def workers(work, shards: Iterable[decoding.Shard]) -> Iterator[None]:
        write_image(tree / "photo/cat/00.png", 7)
        return map(work, shards)

    with pytest.raises(DataError, match="has other files here than where the command was given"):
        prepare(folder(tree), 8, workers=workers)
    with pytest.raises(DataError, match="all machines need one cache; set UNSEEN_CACHE"):
        prepare(folder(tree), 8, workers=lambda work, shards: (None for _ in shards))
