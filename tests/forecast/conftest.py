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
def story(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Story:
    folder = tmp_path_factory.mktemp("story")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        model = _train(folder / "models", "dmg", UNSEEN)
        for domain in KNOWN:
            _train(folder / "references", "dmg", f"{UNSEEN},{domain}")
        _train(folder / "references", "dmg", "plain")  # has seen labels of the unseen domain
        _train(folder / "references", "aggregate", f"{UNSEEN},plain")  # another method
        _write_images(folder / "images")
    return Story(model, folder / "references", folder / "images")


def _train(runs: Path, method: str, unseen_domain: str) -> Path:
    settings = {key: value for key, value in TINY.items() if key != "data.unseen_domain"}
    overrides = settings | {"data.unseen_domain": unseen_domain, "steps": 3}
    run = unseen.fit(f"digits/{method}", runs=runs, console=Console(quiet=True), **overrides)
    return run.folder.path


def _write_images(folder: Path) -> None:
    folder.mkdir()
    dataset = open_dataset(DataSettings(name="digits"))
    for number, row in enumerate(dataset.index().rows(UNSEEN)[:60]):
        dataset.read(int(row)).save(folder / f"{number:02}.png")
