import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.dataset import Dataset, open_dataset
from unseen.errors import DataError
from unseen.settings import catalog

Writer = Callable[..., Path]


def opened(name: str, root: Path, **values: object) -> Dataset:
    kind = catalog.load("dataset", name)
    return open_dataset(kind.Config.model_validate({"name": name, "root": root, **values}))


def refused(name: str, root: Path, message: str, **values: object) -> None:
    with pytest.raises(DataError, match=message):
        opened(name, root, **values).index()


def contents(dataset: Dataset) -> list[bytes]:
    return [dataset.content(position) for position in range(len(dataset.index()))]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test, and no datasets from outside."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("UNSEEN_CACHE", str(folder))
    monkeypatch.delenv("UNSEEN_DATA", raising=False)
    return folder


@pytest.fixture
def write_image() -> Writer:
    """Writes a small image of noise; the same number gives the same image."""

    def write(path: Path, number: int = 0, size: tuple[int, int] = (12, 10)) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3))
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        return path

    return write


@pytest.fixture
def tree(tmp_path: Path, write_image: Writer) -> Path:
    """root/domain/class/*: 2 domains x 2 classes x 3 images."""
    root = tmp_path / "pictures"
    number = 0
    for domain in ("paint", "photo"):
        for name in ("cat", "dog"):
            for file in range(3):
                write_image(root / domain / name / f"{file}.png", number := number + 1)
    return root


def real_data(name: str) -> Path:
    """A folder below $UNSEEN_DATA, as it was before the fixtures above; skips where it is not."""
    root = REAL_DATA
    if root is None or not (Path(root) / name).is_dir():
        pytest.skip(f"needs the folder {name} below $UNSEEN_DATA")
    return Path(root) / name


REAL_DATA = os.environ.get("UNSEEN_DATA")


@pytest.fixture
def real_pacs() -> Path:
    return real_data("PACS")
