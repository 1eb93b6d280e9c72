"""Files of weights: refused with a reason, and never run."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from unseen.errors import UnseenError
from unseen.methods.base import Traits
from unseen.training.checkpoints import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)


class Trap:
    """Unpickling this makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return Path.mkdir, (self.folder,)


class Linear(nn.Linear):
    traits = Traits()


class Holding(nn.Sequential):
    traits = Traits(training_only=("1",))


def adam(method: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(method.parameters())


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_weights(file, Linear(3, 2))
    with pytest.raises(UnseenError, match=r"another network: 1 tensors differ, among them weight"):
        load_weights(file, Linear(4, 2))
    with pytest.raises(UnseenError, match=r"another network: 4 tensors differ, among them 0\.bias"):
        load_weights(file, Holding(nn.Linear(3, 2)))
    load_weights(file, Linear(3, 2))


def test_a_model_has_only_what_prediction_needs(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    saved = Holding(nn.Linear(3, 2), nn.Linear(2, 5))
    save_weights(file, saved)
    assert load_file(file).keys() == {"0.weight", "0.bias"}
    loaded = Holding(nn.Linear(3, 2), nn.Linear(2, 5))
    before = loaded[1].weight.clone()
    load_weights(file, loaded)
    assert torch.equal(loaded[0].weight, saved[0].weight)
    assert torch.equal(loaded[1].weight, before)


@pytest.mark.parametrize(
    ("keep", "width", "message"),
    [
        (None, 4, "weights of another network"),
        *((keep, 3, r"checkpoint\.safetensors is damaged or not a saf") for keep in (0, 4, 100)),
    ],
)
def test_checkpoints_that_do_not_fit(
    keep: int | None, width: int, message: str, tmp_path: Path
) -> None:
    file, method = tmp_path / "checkpoint.safetensors", nn.Linear(3, 2)
    assert load_checkpoint(file, method, adam(method)) is None, "there is none yet"
    save_checkpoint(file, method, adam(method), Checkpoint(1, 0, [], 0.0))
    file.write_bytes(file.read_bytes()[:keep])
    other = nn.Linear(width, 2)
    with pytest.raises(UnseenError, match=message):
        load_checkpoint(file, other, adam(other))
    save_file({"method.weight": torch.zeros(1)}, file)
    with pytest.raises(UnseenError, match="is not a checkpoint; remove it to start the run again"):
        load_checkpoint(file, method, adam(method))


@pytest.mark.parametrize("write", [pickle.dump, torch.save])
def test_a_pickle_posing_as_weights_is_refused_and_not_run(tmp_path: Path, write) -> None:
    file, trap = tmp_path / "weights.safetensors", tmp_path / "executed"
    with file.open("wb") as stream:
        write({"weight": Trap(trap)}, stream)
    with pytest.raises(UnseenError, match="not a safetensors file"):
        load_weights(file, nn.Linear(3, 2))
    assert not trap.exists()


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnseenError, match=r"there is no .*last\.safetensors"):
        load_weights(tmp_path / "last.safetensors", nn.Linear(3, 2))
