import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.dataset import Dataset, open_dataset
from unseen.errors import DataError
from unseen.settings import catalog


def opened(name: str, root: Path, **values: object) -> Dataset:
    kind = catalog.load("dataset", name)
    return open_dataset(kind.Config.model_validate({"name": name, "root": root, **values}))


def refused(name: str, root: Path, message: str, **values: object) -> None:
    with pytest.raises(DataError, match=message):
        opened(name, root, **values).index()


def contents(dataset: Dataset) -> list[bytes]:
    return [dataset.content(position) for position in range(len(dataset.index()))]


def idx(values: np.ndarray) -> bytes:
    """MNIST's format: 0, 0, kind, number of axes; lengths; values."""
    lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes()


def write_mnist(
    folder: Path, pixels: np.ndarray, labels: np.ndarray, n_train: int, zipped: bool = False
) -> Path:
    """Write the four files; digits from `n_train` on test."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, n_train)), ("t10k", slice(n_train, None))):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            data = idx(values[rows].astype(np.uint8))
            name = f"{part}-{kind}-ubyte{'.gz' * zipped}"
            (folder / name).write_bytes(gzip.compress(data) if zipped else data)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test, and no datasets from outside."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("UNSEEN_CACHE", str(folder))
    monkeypatch.delenv("UNSEEN_DATA", raising=False)
    return folder


def write_image(path: Path, number: int = 0) -> Path:
    """Write a small image of noise; the same number gives the same image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (10, 12, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """root/domain/class/*: 2 domains x 2 classes x 3 images."""
    root = tmp_path / "pictures"
    folders = [root / domain / name for domain in ("paint", "photo") for name in ("cat", "dog")]
    for number in range(12):
        write_image(folders[number // 3] / f"{number % 3}.png", number + 1)
    return root


REAL_DATA = os.environ.get("UNSEEN_DATA")


def real_data(name: str) -> Path:
    """A folder below $UNSEEN_DATA, as it was before the fixtures above; skips where it is not."""
    root = REAL_DATA
    if root is None or not (Path(root) / name).is_dir():
        pytest.skip(f"needs the folder {name} below $UNSEEN_DATA")
    return Path(root) / name
