"""Tiny runs on the digits that tests of forecasts share, and digits as files."""

from pathlib import Path
from typing import NamedTuple

import pytest
from rich.console import Console
from tests.tiny import TINY

import unseen
from unseen.data.dataset import open_dataset
from unseen.settings.experiment import DataSettings

UNSEEN = "outlines"
KNOWN = ("plain", "blended", "coloured")


class Story(NamedTuple):
    model: Path
    references: Path
    """Runs without the unseen domain, each of the known ones left out in turn, and others that must
    not be used."""
    images: Path


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    references, images = folder / "references", folder / "images"

    def train(runs: Path, method: str, unseen_domain: str) -> Path:
        settings = TINY | {"data.unseen_domain": unseen_domain, "steps": 3}
        run = unseen.fit(f"digits/{method}", runs=runs, console=Console(quiet=True), **settings)
        return run.folder.path

    model = train(folder / "models", "dmg", UNSEEN)
    for domain in KNOWN:
        train(references, "dmg", f"{UNSEEN},{domain}")
    train(references, "dmg", "plain")  # has seen labels of the unseen domain
    train(references, "aggregate", f"{UNSEEN},plain")  # another method
    images.mkdir()
    dataset = open_dataset(DataSettings(name="digits"))
    for number, row in enumerate(dataset.index().rows(UNSEEN)[:60]):
        dataset.read(int(row)).save(images / f"{number:02}.png")
    return Story(model, references, images)
