"""Frozen features: computed once, shared, and the same to train on as the images they come from."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from unseen import api
from unseen.errors import SettingsError
from unseen.methods.multihead import MultiHead
from unseen.networks.backbones import build_network
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.training import features

Build = Callable[..., Experiment]
RunTiny = Callable[[Experiment, Path], RunFolder]


def test_they_are_computed_once_and_shared(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tiny(tiny(network__freeze_until="fc1"), tmp_path / "first")
    (file,) = cache.iterdir()
    values = np.load(file)
    assert values.shape == (1797, 256)
    frozen = {"network__freeze_until": "fc1"}
    with monkeypatch.context() as patch:
        patch.setattr(features, "_reported", None)  # would fail if it were called
        run_tiny(tiny("digits/multihead", **frozen), tmp_path / "second")
        run_tiny(tiny(**frozen, data__unseen_domain="plain", steps=4), tmp_path / "third")
    assert list(cache.iterdir()) == [file]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    run_tiny(tiny(**frozen, steps=3), tmp_path / "damaged")
    assert file.read_bytes() == whole


def test_another_boundary_or_other_weights_have_features_of_their_own(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    for number, changes in enumerate(({}, {"seed": 1}, {"network__freeze_until": "pool"}), 1):
        settings = {"network__freeze_until": "fc1", **changes}
        run_tiny(tiny(**settings), tmp_path / str(number))
        assert len(list(cache.iterdir())) == number


def test_stored_or_recomputed_makes_no_difference(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without augmentation, training from features equals training through the frozen stages."""
    plain = {f"augment__{name}": value for name, value in
             {"crop_scale": 1, "flip": 0, "jitter": 0, "grayscale": 0}.items()}  # fmt: skip
    # not Adam, which makes whole steps of rounding errors
    plain |= {"optimizer__name": "sgd", "optimizer__lr": 0.05}
    experiment = tiny("digits/multihead", network__freeze_until="fc1", **plain)
    stored = run_tiny(experiment, tmp_path / "stored")
    monkeypatch.setattr(MultiHead, "traits", MultiHead.traits._replace(needs_pixels=True))
    recomputed = run_tiny(experiment, tmp_path / "recomputed")
    first, second = (load_file(run.weights("last")) for run in (stored, recomputed))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-5, rtol=1e-4)


def test_the_frozen_part_stays_and_the_rest_learns(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    short = run_tiny(tiny(network__freeze_until="fc1", steps=1), tmp_path / "short")
    long = run_tiny(tiny(network__freeze_until="fc1", steps=6), tmp_path / "long")
    first, second = (load_file(run.weights("last")) for run in (short, long))
    changed = {name.split(".")[2] for name in first if not torch.equal(first[name], second[name])}
    assert changed == {"fc1", "fc2"}


def test_a_finished_run_takes_images(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    """The model holds its frozen part: nobody who uses it needs the stored features."""
    folder = run_tiny(tiny("digits/dmg", network__freeze_until="fc1"), tmp_path / "run")
    result = folder.read_result()
    views = result.under(result.selection).views
    found = api.load_run(folder.path).evaluate()
    assert found["out_of_domain"]["outlines"].accuracy == pytest.approx(
        views["out_of_domain"]["outlines"].accuracy, abs=0.005
    )


def test_a_method_that_needs_pixels_gets_them(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    run_tiny(tiny("digits/dsn", network__freeze_until="fc1"), tmp_path / "run")
    assert not cache.exists()


def test_frozen_stages_may_see_augmented_pixels_at_every_step(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    """Nothing is stored, the frozen part stays, and augmentation makes a difference."""
    settings = {"network__freeze_until": "fc1", "network__store_features": False}
    folder = run_tiny(tiny(**settings), tmp_path / "run")
    start = run_tiny(tiny(**settings, steps=1), tmp_path / "start")
    other = run_tiny(tiny(**settings, augment__random_convolution=1), tmp_path / "other")
    assert not cache.exists()
    weights, first, changed = (load_file(f.weights("last")) for f in (folder, start, other))
    moved = {name.split(".")[2] for name in first if not torch.equal(first[name], weights[name])}
    assert moved == {"fc1", "fc2"}
    assert not torch.equal(
        weights["network.stages.fc1.0.weight"], changed["network.stages.fc1.0.weight"]
    )


def test_no_gradient_is_kept_for_frozen_stages(tiny: Build) -> None:
    """Their activations are dropped at once, and backward ends where they end."""
    settings = tiny(network__freeze_until="fc1", network__store_features=False).network
    network = build_network(settings, n_classes=10).train()
    features = network.start(torch.rand(2, 3, 16, 16))
    assert features.grad_fn is None
    assert not features.requires_grad
    assert network(torch.rand(2, 3, 16, 16)).requires_grad


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (
            "aggregate",
            {"network__freeze_until": "fc1", "augment__erasing": 0.5},
            "augment.erasing changes pixels, but this run trains from stored features .* set "
            "network.store_features=false",
        ),
        (
            "aggregate",
            {"data__training_domains": "plain", "augment__amplitude_mix": 1},
            r"different training domains, found one \(plain\); train on more domains",
        ),
        ("aggregate", {"network__freeze_until": "conv1"}, "is the first stage: none is frozen"),
        ("aggregate", {"network__freeze_until": "fc3"}, "unknown stage 'fc3'"),
        (
            "dmg",
            {"network__freeze_until": "fc2", "method__sites": "fc1"},
            "'fc1' lies in the frozen part of the network; choose one from 'fc2' on",
        ),
        (
            "multihead",
            {"network__freeze_until": "fc2", "method__split": "pool"},
            "'pool' lies in the frozen part",
        ),
    ],
)
def test_stages_that_do_not_fit(
    method: str,
    changes: dict[str, str],
    message: str,
    tiny: Build,
    run_tiny: RunTiny,
    tmp_path: Path,
) -> None:
    with pytest.raises(SettingsError, match=message):
        run_tiny(tiny(f"digits/{method}", **changes), tmp_path / "run")


def test_a_block_inside_a_stage_is_a_boundary_like_any_other(
    tiny: Build, run_tiny: RunTiny, cache: Path, tmp_path: Path
) -> None:
    """Masked there, trained from features, and read back from the folder."""
    experiment = tiny(
        "digits/dmg",
        network__name="resnet18",
        network__image_size=32,
        network__freeze_until="layer4.1",
        method__sites=["layer4.1", "fc"],
    )
    run = api.load_run(run_tiny(experiment, tmp_path / "run").path)
    (file,) = cache.iterdir()
    assert np.load(file).shape == (1797, 1, 1, 512)
    found = run.evaluate()["out_of_domain"]["outlines"].accuracy
    assert found == pytest.approx(run.accuracy()["outlines"], abs=0.005)
