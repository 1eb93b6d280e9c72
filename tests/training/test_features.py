"""Frozen features: computed once, shared, and the same to train on as the images they come from."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import UNCHANGED, tiny, train

from unseen import api
from unseen.methods.multihead import MultiHead
from unseen.networks.backbones import build_network
from unseen.training import features


def test_they_are_computed_once_and_shared(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny(network__freeze_until="fc1"), tmp_path / "first")
    (file,) = cache.iterdir()
    values = np.load(file)
    assert values.shape == (1797, 256)
    frozen = {"network__freeze_until": "fc1"}
    with monkeypatch.context() as patch:
        patch.setattr(features, "_reported", None)  # would fail if it were called
        train(tiny("digits/multihead", **frozen), tmp_path / "second")
        train(tiny(**frozen, data__unseen_domain="plain", steps=4), tmp_path / "third")
    assert list(cache.iterdir()) == [file]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    train(tiny(**frozen, steps=3), tmp_path / "damaged")
    assert file.read_bytes() == whole


def test_another_boundary_or_other_weights_have_features_of_their_own(
    cache: Path, tmp_path: Path
) -> None:
    for number, changes in enumerate(({}, {"seed": 1}, {"network__freeze_until": "pool"}), 1):
        settings = {"network__freeze_until": "fc1", **changes}
        train(tiny(**settings), tmp_path / str(number))
        assert len(list(cache.iterdir())) == number


def test_stored_or_recomputed_makes_no_difference(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without augmentation, training from features equals training through the frozen stages."""
    # not Adam, which makes whole steps of rounding errors
    plain = UNCHANGED | {"optimizer__name": "sgd", "optimizer__lr": 0.05}
    experiment = tiny("digits/multihead", network__freeze_until="fc1", **plain)
    stored = train(experiment, tmp_path / "stored")
    monkeypatch.setattr(MultiHead, "traits", MultiHead.traits._replace(needs_pixels=True))
    recomputed = train(experiment, tmp_path / "recomputed")
    first, second = (load_file(run.weights("last")) for run in (stored, recomputed))
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-5, rtol=1e-4)


def test_a_finished_run_takes_images(cache: Path, tmp_path: Path) -> None:
    """The model holds its frozen part: nobody who uses it needs the stored features."""
    folder = train(tiny("digits/dmg", network__freeze_until="fc1"), tmp_path / "run")
    result = folder.read_result()
    views = result.under(result.selection).views
    found = api.load_run(folder.path).evaluate()
    assert found["out_of_domain"]["outlines"].accuracy == pytest.approx(
        views["out_of_domain"]["outlines"].accuracy, abs=0.005
    )


def test_a_method_that_needs_pixels_gets_them(cache: Path, tmp_path: Path) -> None:
    train(tiny("digits/dsn", network__freeze_until="fc1"), tmp_path / "run")
    assert not cache.exists()


@pytest.mark.parametrize("store", [True, False])
def test_the_frozen_part_alone_stays(store: bool, cache: Path, tmp_path: Path) -> None:
    """Where nothing is stored, frozen stages may see augmented pixels at every step."""
    settings = {"network__freeze_until": "fc1", "network__store_features": store}
    runs = [train(tiny(**settings, steps=n), tmp_path / str(n)) for n in (1, 6)]
    first, last = (load_file(run.weights("last")) for run in runs)
    changed = {name.split(".")[2] for name in first if not torch.equal(first[name], last[name])}
    assert changed == {"fc1", "fc2"}
    assert cache.exists() == store
    if not store:
        other = train(tiny(**settings, augment__random_convolution=1), tmp_path / "other")
        name = "network.stages.fc1.0.weight"
        assert not torch.equal(last[name], load_file(other.weights("last"))[name])


def test_no_gradient_is_kept_for_frozen_stages() -> None:
    """Their activations are dropped at once, and backward ends where they end."""
    settings = tiny(network__freeze_until="fc1", network__store_features=False).network
    network = build_network(settings, n_classes=10).train()
    features = network.start(torch.rand(2, 3, 16, 16))
    assert features.grad_fn is None
    assert not features.requires_grad
    assert network(torch.rand(2, 3, 16, 16)).requires_grad


def test_a_block_inside_a_stage_is_a_boundary_like_any_other(cache: Path, tmp_path: Path) -> None:
    """Masked there, trained from features, and read back from the folder."""
    experiment = tiny(
        "digits/dmg",
        network__name="resnet18",
        network__image_size=16,
        network__freeze_until="layer4.1",
        method__sites=["layer4.1", "fc"],
    )
    run = api.load_run(train(experiment, tmp_path / "run").path)
    (file,) = cache.iterdir()
    assert np.load(file).shape == (1797, 1, 1, 512)
    found = run.evaluate()["out_of_domain"]["outlines"].accuracy
    assert found == pytest.approx(run.accuracy()["outlines"], abs=0.005)
