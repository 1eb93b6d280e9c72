"""Models, exported files and pictures that several tests read and none changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tests.forecast.made import made_profile
from tests.serve.models import CLASSES, DOMAINS, make_model
from tests.tiny import TINY

import unseen
from unseen.serve.export import Exported, export
from unseen.serve.model import Model


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for number, size in enumerate(((24, 24), (31, 17), (90, 120), (5, 9))):
        pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def dmg() -> Model:
    model = make_model("dmg")
    model.fitted_temperature = 0.7
    model.profile = made_profile(CLASSES, DOMAINS, 60, every=3, width=5)
    return model


@pytest.fixture(scope="session")
def onnx_file(dmg: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(dmg, "onnx", tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture(scope="session")
def onnx_model(onnx_file: Exported) -> Path:
    return onnx_file.path


@pytest.fixture(scope="session")
def torch_file(dmg: Model, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(dmg, "torch", tmp_path_factory.mktemp("torch") / "model.pt2")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> unseen.Run:
    """A finished run of two steps."""
    settings: dict[str, Any] = TINY | {"steps": 2, "evaluate_every": 1}
    runs = tmp_path_factory.mktemp("runs")
    return unseen.fit("digits/dmg", runs=runs, console=Console(quiet=True), **settings)
