"""Runs with every augmentation switched on: resumed exactly, and alike on any number of devices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unseen.config import Experiment
from unseen.data.augmentation.pixel_scale import PixelScale
from unseen.data.feed import Feed, Process
from unseen.data.opening import open_dataset
from unseen.records.folder import RunFolder
from unseen.training import loop
from unseen.training.build import build_images, build_sampler
from unseen.training.interruptions import Interrupted
from unseen.training.stacked.groups import stackable_groups
from unseen.training.state import RunState, save

Build = Callable[..., Experiment]
RunTiny = Callable[[Experiment, Path], RunFolder]

EVERYTHING: dict[str, Any] = {
    "augment__randaugment": 0.5,
    "augment__random_convolution": 0.5,
    "augment__amplitude_mix": 1.0,
    "augment__erasing": 0.5,
}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_resumed_run_ends_with_the_same_bytes(
    frozen: bool,
    tiny: Build,
    run_tiny: RunTiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = EVERYTHING
    if frozen:
        settings = settings | {"network__freeze_until": "pool", "network__store_features": False}
    experiment = tiny("digits/dmg", **settings)
    whole = run_tiny(experiment, tmp_path / "whole")

    def save_and_stop(state: RunState) -> None:
        save(state)
        raise Interrupted(state.folder.path, state.step, 15)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save", save_and_stop)
        with pytest.raises(Interrupted):
            run_tiny(experiment, tmp_path / "stopped")
    stopped = run_tiny(experiment, tmp_path / "stopped")
    for name in ("metrics.jsonl", "result.json"):
        assert (whole.path / name).read_bytes() == (stopped.path / name).read_bytes()
    weights = [run.weights("last").read_bytes() for run in (whole, stopped)]
    assert weights[0] == weights[1]
    plain = run_tiny(tiny("digits/dmg"), tmp_path / "plain")
    assert plain.weights("last").read_bytes() != weights[0]


@pytest.mark.parametrize("changes", [{}, {"setting": "adaptation"}, {"sampling": "pooled"}])
def test_two_processes_share_the_batch_of_one(tiny: Build, changes: dict[str, str]) -> None:
    """Image by image, with the same random changes and the same partners."""
    experiment = tiny("digits/dann", images_per_domain=4, **EVERYTHING, **changes)
    prepared, roles = build_images(open_dataset(experiment.data), experiment, 16)
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


def test_runs_that_compute_frozen_stages_anew_train_one_by_one(tiny: Build) -> None:
    """A stack trains from stored features."""
    settings = {"network__freeze_until": "fc1"}
    stored = [tiny(**settings, optimizer__lr=lr) for lr in (1e-3, 1e-2)]
    assert len(stackable_groups(stored)) == 1
    anew = [tiny(**settings, network__store_features=False, optimizer__lr=e) for e in (1e-3, 1e-2)]
    assert len(stackable_groups(anew)) == 2
