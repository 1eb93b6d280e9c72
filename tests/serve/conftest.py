"""Models, exported files and pictures that several tests read and none changes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tests.serve.models import make_model

import unseen
from unseen.serve.export import Exported, export
from unseen.serve.model import Model

SIZES = ((24, 24), (31, 17), (90, 120), (5, 9))


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four images, one of them in a folder below."""
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "below").mkdir()
    for number, (height, width) in enumerate(SIZES):
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
        name = f"below/{number}.png" if number == 3 else f"{number}.png"
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture(scope="session")
def files(pictures: Path) -> list[Path]:
    return sorted(pictures.rglob("*.png"))


@pytest.fixture(scope="session")
def dmg() -> Model:
    model = make_model("dmg")
    model.fitted_temperature = 0.7
    return model


@pytest.fixture(scope="session")
def onnx_file(dmg: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(dmg, "onnx", tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture(scope="session")
def torch_file(dmg: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(dmg, "torch", tmp_path_factory.mktemp("torch") / "model.pt2")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Iterator[unseen.Run]:
    """A finished run of two steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        yield unseen.fit(
            "digits/dmg",
            runs=tmp_path_factory.mktemp("runs"),
            console=Console(quiet=True),
            data={"unseen_domain": "outlines"},
            network={"image_size": 16},
            images_per_domain=2,
            steps=2,
            evaluate_every=1,
            devices={"accelerator": "cpu"},
        )
