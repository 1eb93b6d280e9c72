"""Tiny runs on the digits from one file of weights, as if it were pretrained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from tests.tiny import TINY

from unseen.networks.backbones import build_network
from unseen.results.folder import RunFolder, run_name
from unseen.settings.experiment import NetworkSettings
from unseen.settings.recipes import load_experiment
from unseen.training.display import Display
from unseen.training.execute import execute

Train = Callable[..., RunFolder]


def save_start(path: Path, seed: int = 7) -> Path:
    """The weights of a small network for four classes: its classifier will be new."""
    torch.manual_seed(seed)
    network = build_network(NetworkSettings(name="small_cnn", image_size=16), 4)
    save_file(network.state_dict(), path)
    return path


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("start") / "start.safetensors")


@pytest.fixture(scope="session")
def trained(start: Path, shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Trains a tiny run, once for all tests; `a__b=value` is the setting `a.b=value`."""
    home = tmp_path_factory.mktemp("runs")

    def train(recipe: str = "digits/aggregate", **changes: Any) -> RunFolder:
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        settings = TINY | {"network.pretrained": str(start)} | dotted
        experiment = load_experiment(recipe, settings)
        folder = RunFolder(home / run_name(experiment))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("UNSEEN_CACHE", str(shared_cache))
            execute(experiment, folder, Display(Console(quiet=True), 1, ""))
        return folder

    return train
