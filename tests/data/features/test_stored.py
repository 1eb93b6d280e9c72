"""Features as a step reads them: which version of an image, from which file, in which layout."""

import numpy as np
import pytest
import torch

from unseen.data import features
from unseen.data.cache import cache_folder
from unseen.data.features import (
    COMPACT,
    FULL,
    FeatureFile,
    StoredFeatures,
    as_stored,
    chosen_versions,
)
from unseen.data.index import Index
from unseen.data.randomness import image_keys
from unseen.errors import DataError


def index() -> Index:
    n = 5
    names = tuple(f"photo/{number}" for number in range(n))
    numbers = np.zeros(n, dtype=np.int64)
    return Index(("cat",), ("photo",), names, numbers, numbers, np.zeros(n, np.uint8))


def test_versions_are_equally_likely_and_depend_on_the_key_alone() -> None:
    keys = image_keys(0, 3, torch.arange(6000))
    chosen = chosen_versions(keys, 3)
    assert torch.equal(chosen[17:20], chosen_versions(keys[17:20], 3))
    counts = torch.bincount(chosen)
    assert len(counts) == 4
    assert (counts > 1350).all()  # 1500 each, give or take four standard deviations
    assert not torch.equal(chosen, chosen_versions(image_keys(0, 4, torch.arange(6000)), 3))


def test_a_batch_takes_every_row_from_the_version_that_its_key_chose() -> None:
    values = np.array([[0], [10], [20], [30], [40]], dtype=np.float32)
    views = tuple(np.array([[v], [20 + v], [40 + v]], dtype=np.float16) for v in (1, 2))
    stored = StoredFeatures(index(), values, np.array([0, 2, 4]), views)
    positions = np.array([4, 0, 2, 2, 0, 4, 0, 0])
    keys = image_keys(1, 0, torch.arange(8))
    expected = torch.as_tensor(positions * 10) + chosen_versions(keys, 2)
    assert set(chosen_versions(keys, 2).tolist()) == {0, 1, 2}
    found = stored.training_batch(positions, keys)
    assert found.dtype == torch.float32
    assert found[:, 0].tolist() == expected.tolist()
    assert stored.batch(positions)[:, 0].tolist() == (positions * 10).tolist()


def test_without_views_a_step_sees_the_images_as_they_are() -> None:
    values = np.arange(5, dtype=np.float32)[:, None]
    stored = StoredFeatures(index(), values)
    rows = np.array([2, 0])
    assert torch.equal(
        stored.training_batch(rows, image_keys(0, 0, torch.arange(2))), stored.batch(rows)
    )


def test_maps_keep_their_shape_and_have_channels_last_in_memory() -> None:
    maps = torch.arange(5 * 2 * 3 * 4, dtype=torch.float32).view(5, 2, 3, 4)
    on_disk = as_stored(maps)
    assert on_disk.shape == (5, 3, 4, 2)
    view = on_disk[[0, 2, 4]].astype(np.float16)
    stored = StoredFeatures(index(), on_disk, np.array([0, 2, 4]), (view,))
    rows = np.array([4, 0, 2])
    for found in (
        stored.batch(rows),
        stored.training_batch(rows, image_keys(0, 0, torch.arange(3))),
    ):
        assert torch.equal(found, maps[rows])
        assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def cache(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path))


@pytest.mark.usefixtures("cache")
def test_half_precision_unless_a_number_is_too_large_for_it() -> None:
    def parts(largest: float) -> list[np.ndarray]:
        return [np.ones((2, 3), np.float32), np.full((1, 3), largest, np.float32)]

    small, large = (FeatureFile(name, (3, 3), COMPACT) for name in ("small", "large"))
    small.write(lambda: parts(6e4))
    large.write(lambda: parts(7e4))
    found = [file.open() for file in (small, large)]
    assert [values.dtype.name for values in found if values is not None] == ["float16", "float32"]
    assert found[1] is not None
    assert found[1].tolist() == [[1] * 3, [1] * 3, [7e4] * 3]
    assert small.size == 18
    assert FeatureFile("small", (3, 3), FULL).open() is None  # not what was asked for
    assert FeatureFile("small", (4, 3), COMPACT).open() is None


@pytest.mark.usefixtures("cache")
def test_a_file_that_is_being_made_is_left_to_its_maker() -> None:
    file, other = (FeatureFile(name, (1, 1), FULL) for name in ("file", "other"))
    with file.claimed() as first:
        assert first
        with file.claimed() as second, other.claimed() as third:
            assert (second, third) == (features.fcntl is None, True)
    with file.claimed() as again:
        assert again


@pytest.mark.usefixtures("cache")
def test_what_a_killed_process_left_is_removed_by_the_next_one() -> None:
    file, other = (FeatureFile(name, (1, 1), FULL) for name in ("file", "other"))
    file.path.parent.mkdir()
    leftovers = [each.path.with_name(f".{each.path.name}.x.partial") for each in (file, other)]
    for leftover in leftovers:
        leftover.touch()
    with file.claimed() as mine:
        assert mine
    assert [leftover.exists() for leftover in leftovers] == [features.fcntl is None, True]


@pytest.mark.usefixtures("cache")
def test_what_stops_in_the_middle_leaves_nothing() -> None:
    file = FeatureFile("file", (2, 1), FULL)

    def parts() -> list[np.ndarray]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        file.write(parts)
    assert file.open() is None
    assert not list((cache_folder() / "features").glob("*"))


@pytest.mark.usefixtures("cache")
def test_a_disk_without_room_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(DataError, match=r"needs 4000000\.0 GB .* or choose fewer network\.views"):
        FeatureFile("file", (10**15,), FULL).write(list)
