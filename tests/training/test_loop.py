"""The loop: the order of its hooks, what it looks at, where it stops, and how it goes on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny, train

from unseen.atomic import read_json
from unseen.data.dataset import open_dataset
from unseen.data.prepare import PreparedImages
from unseen.errors import UnseenError
from unseen.settings.experiment import Experiment
from unseen.training import devices, loop
from unseen.training.build import build_method, build_task
from unseen.training.checkpoints import load_checkpoint
from unseen.training.optimizers import build_optimizer


def weights(folder, rule: str = "last") -> dict[str, torch.Tensor]:
    return load_file(folder.weights(rule))


@pytest.fixture
def hand_made(watched: Any) -> Experiment:
    """with_gradients gives ½ everywhere, edit_gradients makes it 1, SGD then takes lr off."""
    watched.calls.clear()
    plain = {"name": "sgd", "lr": 0.25, "momentum": 0}
    return tiny(method={"name": "watched_parts:Watched"}, optimizer=plain, steps=2)


def test_hooks_are_called_in_order(hand_made: Experiment, watched, tmp_path: Path) -> None:
    folder = train(hand_made, tmp_path / "run")
    calls = watched.calls
    hooks = ("loss", "edit_gradients", "after_update")
    assert [call[:2] for call in calls] == [(name, step) for step in (0, 1) for name in hooks]
    assert calls[0] == ("loss", 0, 2)
    assert calls[1] == ("edit_gradients", 0, {0.5})
    assert calls[2][2] - calls[5][2] == pytest.approx(0.25)
    records = [record for record in folder.read_metrics() if "loss" in record]
    assert [record["loss"] for record in records] == [0, 0], "the value of with_gradients is zero"
    assert all(record["task"] > 0 and record["lr"] == 0.25 for record in records)


def test_clipping_bounds_the_gradient(hand_made: Experiment, watched, tmp_path: Path) -> None:
    """All gradients are 1, so each becomes norm / √n, whatever edit_gradients made of them."""
    folder = train(hand_made.model_copy(update={"clip_gradient": 2.0}), tmp_path / "run")
    first, second = (call[2] for call in watched.calls if call[0] == "after_update")
    count = sum(tensor.numel() for tensor in weights(folder).values())
    assert first - second == pytest.approx(0.25 * 2 / count**0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("method", "message", "saved"),
    [
        ("Exploding", r"the loss is not finite at step 5 \(loss nan, accuracy ", 4),
        ("Endless", "the weights are not finite after step 4", 2),
    ],
)
def test_a_run_that_diverges_stops_and_keeps_a_good_checkpoint(
    method: str, message: str, saved: int, watched, tmp_path: Path
) -> None:
    experiment = tiny(method={"name": f"watched_parts:{method}"})
    with pytest.raises(UnseenError, match=message) as caught:
        train(experiment, tmp_path / "run")
    assert "try optimizer.lr=0.0001 or clip_gradient=1" in str(caught.value)
    assert str(tmp_path / "run") in str(caught.value)
    assert not (tmp_path / "run" / "result.json").exists()
    built = build_method(experiment, build_task(open_dataset(experiment.data).index(), experiment))
    optimizer = build_optimizer(built, experiment.optimizer)
    about = load_checkpoint(tmp_path / "run" / "checkpoint.safetensors", built, optimizer)
    assert about is not None
    assert about.step == saved
    assert all(torch.isfinite(p).all() for p in built.parameters())


def test_the_oracle_peeks_and_says_so(tmp_path: Path) -> None:
    folder = train(tiny(selection="oracle"), tmp_path / "run")
    evaluations = [record for record in folder.read_metrics() if "validation" in record]
    assert [set(record["unseen"]) for record in evaluations] == [{"outlines"}] * 2
    result = folder.read_result()
    assert set(result.rules) == {"oracle", "source", "last"}
    best = max(evaluations, key=lambda record: record["unseen"]["outlines"])
    chosen = result.rules["oracle"]
    assert chosen.step == best["step"]
    found = chosen.views["out_of_domain"]["outlines"].accuracy
    assert found == best["unseen"]["outlines"]


@pytest.mark.parametrize(
    ("selection", "peeks"), [("source", False), ("last", False), ("oracle", True)]
)
def test_training_never_reads_the_unseen_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selection: str, peeks: bool
) -> None:
    """Every read during `fit` is checked against the images' domains; measuring comes after it."""
    read_before: set[str] = set()
    fitting = False
    real_fit, real_batch = loop.fit, PreparedImages.batch

    def fit(*arguments):
        nonlocal fitting
        fitting = True
        real_fit(*arguments)
        fitting = False

    def batch(self: PreparedImages, positions: np.ndarray) -> torch.Tensor:
        if fitting:
            read_before.update(self.index.domains[d] for d in self.index.domain_of[positions])
        return real_batch(self, positions)

    monkeypatch.setattr(loop, "fit", fit)
    monkeypatch.setattr(PreparedImages, "batch", batch)
    folder = train(tiny(selection=selection, steps=3), tmp_path / "run")
    sources = {"plain", "blended", "coloured"}
    assert read_before == (sources | {"outlines"} if peeks else sources)
    assert set(folder.read_result().view("last", "out_of_domain")) == {"outlines"}


def test_length_in_epochs(tmp_path: Path) -> None:
    """A pass over the training images; the last step may begin the next pass."""
    experiment = tiny(epochs=0.5, images_per_domain=64, evaluate_every=100)
    folder = train(experiment, tmp_path / "run")
    images = sum(read_json(folder.data)["train"].values())
    assert folder.read_result().steps == round(0.5 * -(-images // (3 * 64)))
    steps = [record["step"] for record in folder.read_metrics() if "validation" in record]
    assert steps == [folder.read_result().steps]


def test_processes_wait_for_each_other_where_losses_are_recorded(watched, tmp_path: Path) -> None:
    """Elsewhere they neither exchange a number nor look at one."""

    def exchange(*_, **__):
        raise ZeroDivisionError

    cpu = torch.device("cpu")
    fabric = SimpleNamespace(world_size=2, device=cpu, all_reduce=exchange)
    session = SimpleNamespace(fabric=fabric, log_due=False)
    loop.watch(session, {"loss": torch.tensor(1.0)})  # pyright: ignore[reportArgumentType]
    assert loop._agree_to_stop(session, loop.StopFlag()) == 0  # pyright: ignore[reportArgumentType]
    session.log_due = True
    with pytest.raises(ZeroDivisionError):
        loop._agree_to_stop(session, loop.StopFlag())  # pyright: ignore[reportArgumentType]


def test_a_large_batch_in_parts_is_the_same_run(in_double_precision, tmp_path: Path) -> None:
    """Read by several threads, and evaluated in other batches."""
    parts = {"devices__accumulate": 4, "devices__readers": 3, "devices__evaluation_batch": 7}
    settings = {"images_per_domain": 4, "clip_gradient": 0.1}
    whole = train(tiny("digits/dmg", **settings), tmp_path / "whole")
    found = train(tiny("digits/dmg", **settings, **parts), tmp_path / "parts")
    assert found.read_result().run == whole.read_result().run
    torch.testing.assert_close(weights(found), weights(whole), atol=1e-7, rtol=1e-5)
    pairs = zip(found.read_metrics(), whole.read_metrics(), strict=True)
    for ours, theirs in pairs:
        assert ours.get("loss") == pytest.approx(theirs.get("loss"), abs=1e-6)


def test_fp16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, which can do it for a test: a paused run goes on with the scale that it had."""
    monkeypatch.setattr(devices, "SCALING", {"cpu"})
    half = tiny(precision="fp16", clip_gradient=1.0)
    whole = train(half, tmp_path / "whole")
    full = train(tiny(clip_gradient=1.0), tmp_path / "full")
    train(half, tmp_path / "paused", 3)
    paused = train(half, tmp_path / "paused")
    assert (paused.weights("last")).read_bytes() == (whole.weights("last")).read_bytes()
    losses = [folder.read_metrics()[0]["loss"] for folder in (whole, full)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]
    for name, tensor in weights(full).items():
        assert weights(whole)[name].dtype == torch.float32
        torch.testing.assert_close(weights(whole)[name], tensor, atol=0.02, rtol=0.1)


@pytest.mark.parametrize("method", ["dmg", "multihead"])
def test_bf16(tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str) -> None:
    """Weights stay in 32 bits, the arithmetic is not: the first losses agree roughly only."""
    folder = train(tiny(f"digits/{method}", precision="bf16", steps=2), tmp_path / "half")
    assert not [each for each in caplog.records if "bfloat16" in each.getMessage()]
    full = train(tiny(f"digits/{method}", steps=2), tmp_path / "full")
    assert {t.dtype for t in weights(folder).values()} == {torch.float32}
    losses = [f.read_metrics()[0]["loss"] for f in (folder, full)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]
