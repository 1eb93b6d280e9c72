from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.audit.audit import audit
from unseen.audit.findings import AuditReport
from unseen.data.datasets.folder import Folder
from unseen.data.prepare import prepare

SIZE = 96


def scene(number: int) -> Image.Image:
    """A picture of soft patches of colour, another one for each number."""
    patches = np.random.default_rng(number).integers(20, 236, (7, 7, 3)).astype(np.uint8)
    return Image.fromarray(patches).resize((SIZE, SIZE), Image.Resampling.BICUBIC)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Two domains, two classes, 24 different pictures of each class in each."""
    root = tmp_path / "scans"
    number = 0
    for domain in ("north", "south"):
        for name in ("cat", "dog"):
            (root / domain / name).mkdir(parents=True)
            for image in range(24):
                scene(number := number + 1).save(root / domain / name / f"{image:02d}.png")
    return root


@pytest.fixture
def look() -> Callable[..., AuditReport]:
    """Audits a folder; `features` are made of the names of its images."""

    def look(
        root: Path, features: Callable[[str], np.ndarray] | None = None, **settings: object
    ) -> AuditReport:
        config = Folder.Config.model_validate({"name": "folder", **settings})
        dataset = Folder(config, root)
        prepared = prepare(dataset, SIZE)
        made = features and np.stack([features(name) for name in prepared.index.names])
        return audit(dataset, prepared, made)

    return look
