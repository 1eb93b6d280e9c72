"""Features as a step reads them: which version of an image, from which file, in which layout."""

import numpy as np
import pytest
import torch

from unseen.data import features
from unseen.data.augment import PixelScale
from unseen.data.cache import cache_folder
from unseen.data.features import (
    COMPACT,
    FULL,
    FeatureFile,
    StoredFeatures,
    as_stored,
    chosen_versions,
)
from unseen.data.feed import Feed, Process
from unseen.data.index import Index
from unseen.data.randomness import image_keys
from unseen.errors import DataError


def index(n: int = 5) -> Index:
    names, labels = tuple(f"photo/{number}" for number in range(n)), np.arange(n) % 2
    zeros = np.zeros(n, dtype=np.int64)
    return Index(("cat", "dog"), ("photo",), names, labels, zeros, zeros.astype(np.uint8))


@pytest.mark.parametrize("n_images", [1, 2, 3, 16, 17])
def test_every_image_is_evaluated_once_with_its_label(n_images: int) -> None:
    """Also where there are fewer images than processes, so that one of them gets none."""
    stored = StoredFeatures(index(n_images), np.arange(n_images, dtype=np.float32)[:, None])
    seen: list[tuple[float, int]] = []
    for rank in range(2):
        process, scale = Process(torch.device("cpu"), rank, 2), PixelScale((0.0,), (1.0,))
        feed = Feed(stored, scale, process, batch_size=8, readers=3)
        for images, labels in feed.evaluation(np.arange(n_images)):
            assert len(images) == len(labels) <= 8
            seen += zip(images[:, 0].tolist(), labels.tolist(), strict=True)
    assert sorted(seen) == [(float(row), row % 2) for row in range(n_images)]


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
    plain = StoredFeatures(index(), values).training_batch(positions, keys)
    assert stored.batch(positions)[:, 0].tolist() == (positions * 10).tolist()
    assert torch.equal(plain, stored.batch(positions))


def test_maps_keep_their_shape_and_have_channels_last_in_memory() -> None:
    maps = torch.arange(5 * 2 * 3 * 4, dtype=torch.float32).view(5, 2, 3, 4)
    on_disk = as_stored(maps)
    assert on_disk.shape == (5, 3, 4, 2)
    view = on_disk[[0, 2, 4]].astype(np.float16)
    stored = StoredFeatures(index(), on_disk, np.array([0, 2, 4]), (view,))
    rows = np.array([4, 0, 2])
    keys = image_keys(0, 0, torch.arange(3))
    for found in (stored.batch(rows), stored.training_batch(rows, keys)):
        assert torch.equal(found, maps[rows])
        assert found.is_contiguous(memory_format=torch.channels_last)


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


def test_a_file_that_is_being_made_is_left_to_its_maker() -> None:
    """What a killed process left of it is removed by the next one."""
    file, other = (FeatureFile(name, (1, 1), FULL) for name in ("file", "other"))
    file.path.parent.mkdir(parents=True)
    leftovers = [each.path.with_name(f".{each.path.name}.x.partial") for each in (file, other)]
    for leftover in leftovers:
        leftover.touch()
    with file.claimed() as first:
        assert first
        assert [leftover.exists() for leftover in leftovers] == [features.fcntl is None, True]
        with file.claimed() as second, other.claimed() as third:
            assert (second, third) == (features.fcntl is None, True)
    with file.claimed() as again:
        assert again


def test_what_stops_in_the_middle_leaves_nothing() -> None:
    file = FeatureFile("file", (2, 1), FULL)
    with pytest.raises(ZeroDivisionError):
        file.write(lambda: (np.ones((1, 1)) for _ in range(1 // 0)))
    assert file.open() is None
    assert not list((cache_folder() / "features").glob("*"))
    with pytest.raises(DataError, match=r"needs 4000000\.0 GB .* or choose fewer network\.views"):
        FeatureFile("file", (10**15,), FULL).write(list)  # before anything is computed
