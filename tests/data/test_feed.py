"""Batches for evaluation, shared out among processes."""

import numpy as np
import pytest
import torch

from unseen.data.augment import PixelScale
from unseen.data.features import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.index import Index


def feeds(n_images: int, world_size: int) -> list[Feed]:
    index = Index(
        ("cat", "dog"),
        ("photo",),
        tuple(f"photo/{number}" for number in range(n_images)),
        np.arange(n_images) % 2,
        np.zeros(n_images, dtype=np.int64),
        np.zeros(n_images, dtype=np.uint8),
    )
    stored = StoredFeatures(index, np.arange(n_images, dtype=np.float32)[:, None])
    processes = [Process(torch.device("cpu"), rank, world_size) for rank in range(world_size)]
    scale = PixelScale((0.0,), (1.0,))
    return [Feed(stored, scale, process, batch_size=8, readers=3) for process in processes]


@pytest.mark.parametrize("n_images", [1, 2, 3, 16, 17])
def test_every_image_is_evaluated_once_with_its_label(n_images: int) -> None:
    """Also where there are fewer images than processes, so that one of them gets none."""
    rows = np.arange(n_images)
    seen: list[tuple[float, int]] = []
    for feed in feeds(n_images, world_size=2):
        for images, labels in feed.evaluation(rows):
            assert len(images) == len(labels) <= 8
            seen += zip(images[:, 0].tolist(), labels.tolist(), strict=True)
    assert sorted(seen) == [(float(row), row % 2) for row in rows]
