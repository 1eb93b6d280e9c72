"""Runs with every augmentation switched on: resumed exactly, and alike on any number of devices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.conftest import AUGMENTED

from unseen import api
from unseen.data.augment import PixelScale
from unseen.data.dataset import open_dataset
from unseen.data.feed import Feed, Process
from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.training.build import build_images, build_method, build_sampler, build_task

Build = Callable[..., Experiment]
RunTiny = Callable[[Experiment, Path], RunFolder]


@pytest.mark.parametrize("changes", [{}, {"setting": "adaptation"}, {"sampling": "pooled"}])
def test_two_processes_share_the_batch_of_one(tiny: Build, changes: dict[str, str]) -> None:
    """Image by image, with the same random changes and the same partners."""
    experiment = tiny("digits/dann", images_per_domain=4, **AUGMENTED, **changes)
    prepared, roles, _ = build_images(open_dataset(experiment.data), experiment, 16)
    sampler = build_sampler(experiment, roles)

    def batch(rank: int, world_size: int) -> dict[int, torch.Tensor]:
        process = Process(torch.device("cpu"), rank, world_size)
        feed = Feed(prepared, PixelScale((0.5,) * 3, (0.5,) * 3), process)
        (found,) = feed.training(sampler, experiment.augment, seed=0, steps=range(5, 6))
        return dict(zip(map(int, found.keys), found.images, strict=True))

    whole, parts = batch(0, 1), [batch(rank, 2) for rank in (0, 1)]
    assert whole.keys() == parts[0].keys() | parts[1].keys()
    for key, image in (parts[0] | parts[1]).items():
        torch.testing.assert_close(image, whole[key], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", catalog.METHODS)
def test_styles_are_mixed_in_training_and_nowhere_else(
    method: str, tiny: Build, run_tiny: RunTiny, tmp_path: Path
) -> None:
    """For every method that runs a stage of its own network in training."""
    if method == "importance":
        pytest.skip("trains a classifier on frozen features, which are stored")
    changes = {"augment__mixstyle": 1, "augment__mixstyle_stages": "conv2", "steps": 2}
    if catalog.load("method", method).traits.target_images in {"required", "dataset_pass"}:
        changes["setting"] = "adaptation"
    mixed = run_tiny(tiny(f"digits/{method}", **changes), tmp_path / "mixed")
    assert mixed.finished
    losses = [line["loss"] for line in mixed.read_metrics() if "loss" in line]
    del changes["augment__mixstyle"], changes["augment__mixstyle_stages"]
    plain = run_tiny(tiny(f"digits/{method}", **changes), tmp_path / "plain")
    assert losses != [line["loss"] for line in plain.read_metrics() if "loss" in line]
    model = api.load_run(mixed.path)
    result = mixed.read_result()
    views = result.under(result.selection).views
    found = model.evaluate()["out_of_domain"]["outlines"].accuracy
    assert found == pytest.approx(views["out_of_domain"]["outlines"].accuracy, abs=0.005)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixstyle_stages": "fc1"}, "'fc1' is no stage with maps of channels"),
        ({"mixstyle_stages": "conv9"}, "'conv9' is no stage .* choose from conv1, conv2"),
        ({"mixstyle_stages": ""}, "mixstyle needs a probability and stages"),
        (
            {"mixstyle_stages": "conv2", "freeze_until": "conv3"},
            "'conv2' is no stage .*store_features=false changes that.* choose from conv3",
        ),
        (
            {"mixstyle_stages": "conv2", "sampling": "pooled", "devices": 2},
            "set sampling=balanced or devices.number=1",
        ),
    ],
)
def test_where_styles_cannot_be_mixed(changes: dict[str, Any], message: str, tiny: Build) -> None:
    places = {"freeze_until": "network__freeze_until", "devices": "devices__number"}
    places |= {"sampling": "sampling", "mixstyle_stages": "augment__mixstyle_stages"}
    settings = {places[name]: value for name, value in changes.items()}

    def build() -> None:
        experiment = tiny(augment__mixstyle=0.5, **settings)
        build_method(experiment, build_task(open_dataset(experiment.data).index(), experiment))

    with pytest.raises(SettingsError, match=message):
        build()
