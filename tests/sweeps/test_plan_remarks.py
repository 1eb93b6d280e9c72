"""Remarks on the images of a comparison are said once, and kept with every run."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import unseen
from unseen.results.folder import RunFolder

SETTINGS = {
    "network": {"name": "small_cnn", "pretrained": False, "image_size": 16},
    "steps": 2,
    "images_per_domain": 4,
    "evaluate_every": 2,
}


@pytest.fixture
def skewed(tmp_path: Path) -> Path:
    """Three places: 40 cats and 3 dogs each."""
    draws = np.random.default_rng(0)
    for place in ("north", "south", "west"):
        for name, number in (("cat", 40), ("dog", 3)):
            folder = tmp_path / "images" / place / name
            folder.mkdir(parents=True)
            for count in range(number):
                pixels = draws.integers(0, 255, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{count}.png")
    return tmp_path / "images"


def test_once_in_a_comparison_and_in_the_record_of_each_run(skewed: Path, tmp_path: Path) -> None:
    settings = SETTINGS | {"data": {"root": str(skewed), "test_share": 0.0}}
    said = io.StringIO()
    console = Console(file=said, width=400)
    options = {"methods": "aggregate", "seeds": (0, 1), "runs": tmp_path / "runs"}
    found = unseen.compare("folder", console=console, **options, **settings)
    printed = said.getvalue()
    assert printed.count("Classes are skewed") == 1
    assert printed.count("too few to choose a checkpoint by") == 1
    for path in found.folders:
        remarks = RunFolder(path).read_result().remarks
        assert any(each.startswith("Classes are skewed") for each in remarks)
        assert "Classes are skewed" in (path / "README.md").read_text()
