"""Statistics of pictures as they were before they were prepared for a network."""

import hashlib

import numpy as np

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder
from unseen.data.dataset import ArrayDataset, Dataset
from unseen.data.prepare import PreparedImages
from unseen.errors import UnseenError
from unseen.forecast.image_statistics import STATISTICS, image_statistics
from unseen.forecast.profile import VERSION


def statistics_of(prepared: PreparedImages, dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """`[rows, statistics]` of the images as they were before they were prepared; read once, and
    kept in the cache for every run on the same images."""
    about = hashlib.sha256(f"{VERSION} {STATISTICS} {prepared.content}".encode())
    about.update(np.asarray(rows, dtype=np.int64).tobytes())
    file = cache_folder() / "statistics" / f"{about.hexdigest()[:32]}.npy"
    try:
        found = np.load(file, allow_pickle=False)
        if found.shape == (len(rows), len(STATISTICS)):
            return found
    except (OSError, ValueError):
        pass
    found = _measure(dataset, [prepared.index.names[row] for row in rows])
    with atomic_file(file) as temporary, temporary.open("wb") as open_file:
        np.save(open_file, found)
    return found


def _measure(dataset: Dataset, names: list[str]) -> np.ndarray:
    """By name: images that were left out have moved the others up."""
    positions = {name: position for position, name in enumerate(dataset.index().names)}
    found = np.full((len(names), len(STATISTICS)), np.nan, dtype=np.float32)
    for row, name in enumerate(names):
        try:
            position = positions[name]
            in_memory = isinstance(dataset, ArrayDataset)
            size = None if in_memory else len(dataset.content(position))
            found[row] = image_statistics(dataset.read(position), size)
        except (UnseenError, KeyError):  # it has gone since it was prepared
            continue
    return found
