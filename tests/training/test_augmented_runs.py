"""Runs with every augmentation switched on: resumed exactly, and alike on any number of devices."""

from pathlib import Path

import pytest
import torch
from tests.tiny import tiny, train
from tests.training.conftest import AUGMENTED

from unseen import api
from unseen.data.augment import PixelScale
from unseen.data.dataset import open_dataset
from unseen.data.feed import Feed, Process
from unseen.settings import catalog
from unseen.training.build import build_images, build_sampler


@pytest.mark.parametrize("changes", [{}, {"setting": "adaptation"}, {"sampling": "pooled"}])
def test_two_processes_share_the_batch_of_one(changes: dict[str, str]) -> None:
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
def test_styles_are_mixed_in_training_and_nowhere_else(method: str, tmp_path: Path) -> None:
    """For every method that runs a stage of its own network in training."""
    if method == "importance":
        pytest.skip("trains a classifier on frozen features, which are stored")
    changes = {"augment__mixstyle": 1, "augment__mixstyle_stages": "conv2", "steps": 2}
    if catalog.load("method", method).traits.target_images in {"required", "dataset_pass"}:
        changes["setting"] = "adaptation"
    mixed = train(tiny(f"digits/{method}", **changes), tmp_path / "mixed")
    assert mixed.finished
    losses = [line["loss"] for line in mixed.read_metrics() if "loss" in line]
    del changes["augment__mixstyle"], changes["augment__mixstyle_stages"]
    plain = train(tiny(f"digits/{method}", **changes), tmp_path / "plain")
    assert losses != [line["loss"] for line in plain.read_metrics() if "loss" in line]
    model = api.load_run(mixed.path)
    result = mixed.read_result()
    views = result.under(result.selection).views
    found = model.evaluate()["out_of_domain"]["outlines"].accuracy
    assert found == pytest.approx(views["out_of_domain"]["outlines"].accuracy, abs=0.005)
