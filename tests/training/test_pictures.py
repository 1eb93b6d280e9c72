"""What a run keeps for its report: mistakes that are mistakes, features that belong to images."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.tiny import tiny

from unseen.data.augment import PixelScale
from unseen.data.dataset import open_dataset
from unseen.data.feed import Feed, Process
from unseen.results.files import write_arrays
from unseen.training.build import build_images, build_method, build_task
from unseen.training.outputs import draw, evenly, penultimate, principal_components


def state_of(method_name: str):
    """The parts of a run that pictures are made of, with weights as they start."""
    experiment = tiny(f"digits/{method_name}")
    dataset = open_dataset(experiment.data)
    torch.manual_seed(0)
    method = build_method(experiment, build_task(dataset.index(), experiment))
    images = build_images(dataset, experiment, 16, lambda *about: None)
    scale = PixelScale(method.network.mean, method.network.std)
    feed = Feed(images.prepared, scale, Process(torch.device("cpu")))
    return SimpleNamespace(method=method, images=images, feed=feed)


@pytest.mark.parametrize("method", ["aggregate", "multihead", "dmg"])
def test_mistakes_and_features_are_those_of_the_model(method, tmp_path) -> None:
    state = state_of(method)
    write_arrays(tmp_path / "pictures.npz", draw(state.method, state.feed, state.images))
    assert state.method.training
    with np.load(tmp_path / "pictures.npz", allow_pickle=False) as archive:
        kept = {name: archive[name] for name in archive.files}
    index, roles = state.images.prepared.index, state.images.roles
    assert (tmp_path / "pictures.npz").stat().st_size < 1_000_000
    assert kept["mistakes/images"].shape == (24, 16, 16, 3)
    names = list(index.names)
    rows = np.array([names.index(name) for name in kept["mistakes/name"]])
    assert set(rows) <= set(roles.out_of_domain["outlines"])
    assert (kept["mistakes/true"] == index.labels[rows]).all()
    pixels = state.images.prepared.batch(rows).permute(0, 2, 3, 1).numpy()
    assert (kept["mistakes/images"] == pixels).all()
    state.method.eval()
    (images,) = state.feed.images(rows)
    with torch.no_grad():
        confidence, called = state.method.predict(images).softmax(dim=1).max(dim=1)
    assert (kept["mistakes/predicted"] == called.numpy()).all()
    assert (kept["mistakes/predicted"] != kept["mistakes/true"]).all()
    assert kept["mistakes/confidence"] == pytest.approx(confidence.numpy(), rel=1e-4)
    assert (np.diff(kept["mistakes/confidence"]) <= 0).all()
    heat = kept["mistakes/heat"]
    assert (heat.dtype, len(heat), heat.max()) == (np.uint8, 24, 255)
    assert kept["features/values"].dtype == np.float16
    assert len(kept["features/values"]) == len(kept["features/label"])
    assert set(kept["domains"][kept["features/domain"]]) == set(index.domains)


def test_the_same_pictures_make_the_same_file(tmp_path) -> None:
    first, second = (tmp_path / f"{name}.npz" for name in "ab")
    for file in (first, second):
        state = state_of("aggregate")
        write_arrays(file, draw(state.method, state.feed, state.images))
    assert first.read_bytes() == second.read_bytes()


def test_features_are_the_input_of_the_classifier() -> None:
    images = torch.rand(3, 3, 16, 16)
    whole = state_of("aggregate").method.network.eval()
    assert torch.equal(penultimate(whole, images), whole.run(images, until=whole.head))
    cut = state_of("multihead").method.network.eval()
    assert torch.equal(penultimate(cut, images), cut(images).flatten(1))


def test_components_keep_distances_up_to_one_scale() -> None:
    values = np.random.default_rng(0).normal(size=(30, 8)) @ np.diag([5, 3, 1, 0, 0, 0, 0, 0])
    few = principal_components(values, 3).astype(np.float64)
    before = np.linalg.norm(values[0] - values[1:], axis=1)
    after = np.linalg.norm(few[0] - few[1:], axis=1)
    assert after / before == pytest.approx(np.full(29, (after / before)[0]), rel=0.01)


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)])
def test_components_are_those_of_the_singular_values(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(1).normal(size=shape)
    centred = values - values.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    expected = left[:, :4] * sizes[:4]
    found = principal_components(values, 4).astype(np.float64)
    assert np.abs(found) == pytest.approx(np.abs(expected / expected.std()), abs=2e-3)


def test_evenly_spaced_rows_have_both_ends() -> None:
    rows = np.arange(100, 200)
    assert evenly(rows, 5).tolist() == [100, 125, 150, 174, 199]
    assert evenly(rows, 1000) is rows
