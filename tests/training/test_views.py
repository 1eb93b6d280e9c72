"""Stored features of augmented views: what they are, who shares them, and what trains from them."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import STILL, UNCHANGED, tiny, train

from unseen.data.dataset import open_dataset
from unseen.data.features import FeatureFile
from unseen.settings.experiment import Experiment
from unseen.training import features
from unseen.training.build import build_images, build_method, build_task
from unseen.training.display import SilentDisplay
from unseen.training.features import stored_features


def viewed(recipe: str = "digits/aggregate", **changes: Any) -> Experiment:
    return tiny(recipe, **{"network__freeze_until": "fc1", "network__views": 2, **changes})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed from now on."""
    found: list[str] = []
    original = features._reported

    def reported(version: features.Version, *rest: Any) -> Iterator[np.ndarray]:
        found.append(version.called)
        return original(version, *rest)

    monkeypatch.setattr(features, "_reported", reported)
    return found


def store(experiment: Experiment, display: SilentDisplay | None = None) -> Any:
    dataset = open_dataset(experiment.data)
    network = build_method(experiment, build_task(dataset.index(), experiment)).network
    images = build_images(dataset, experiment, network.image_size)
    return stored_features(
        torch.device("cpu"), images, network, experiment, display or SilentDisplay()
    )


def test_without_augmentation_a_view_is_the_image_itself(cache: Path) -> None:
    stored = store(viewed(**UNCHANGED))
    rows = stored.copied_rows
    assert 0 < len(rows) < len(stored.index)
    for view in stored.copies:
        assert view.dtype == np.float16
        np.testing.assert_allclose(view, stored.values[rows], atol=2e-3, rtol=1e-3)


def test_views_differ_from_the_image_and_from_each_other(cache: Path) -> None:
    stored = store(viewed())
    rows = stored.copied_rows
    first, second = (view.astype(np.float32) for view in stored.copies)
    plain = stored.values[rows]
    for one, other in ((first, second), (first, plain), (second, plain)):
        assert (np.abs(one - other).max(axis=1) > 0.01).mean() > 0.9
    (again,) = store(viewed(network__views=1)).copies
    assert np.array_equal(again, stored.copies[0])


def test_more_views_add_to_those_that_there_are(cache: Path, computed: list[str]) -> None:
    store(viewed(network__views=1))
    store(viewed(network__views=3))
    assert computed == ["features", "view 1 of 1", "view 2 of 3", "view 3 of 3"]
    store(viewed(network__views=2))
    store(viewed(network__views=0))
    assert len(computed) == 4


def test_runs_share_them_but_not_with_another_augmentation(
    cache: Path, computed: list[str], trunk: str
) -> None:
    shared = {"network__pretrained": trunk}
    store(viewed(**shared))
    count = len(computed)
    same = [{"seed": 1}, {"data__unseen_domain": "plain"}, {"data__training_domains": "blended"}]
    for changes in same:
        store(viewed(**shared | changes))
    store(viewed("digits/dmg", **shared))
    assert len(computed) == count
    other = [{"augment__jitter": 0.5}, {"network__view_seed": 1}, {"data__split_seed": 1}]
    for number, changes in enumerate(other, 1):
        store(viewed(**shared | changes))
        assert len(computed) == count + 2 * number


def test_views_that_mix_images_belong_to_the_training_domains(
    cache: Path, computed: list[str], trunk: str, monkeypatch: Any
) -> None:
    """Partners are training images of the run's own training domains, and of no other one."""
    partners: list[np.ndarray] = []
    original = features.partner_rows

    def watched(*arguments: Any) -> np.ndarray:
        partners.append(original(*arguments))
        return partners[-1]

    monkeypatch.setattr(features, "partner_rows", watched)
    mixing = {"network__pretrained": trunk, "augment__amplitude_mix": 0.5}
    stored = store(viewed(**mixing, network__views=1))
    index = stored.index
    seen = {index.domains[number] for number in index.domain_of[np.concatenate(partners)]}
    assert seen == {"blended", "coloured", "plain"}
    assert set(index.splits[np.concatenate(partners)]) == {0}
    assert "outlines" not in {index.domains[n] for n in index.domain_of[stored.copied_rows]}
    store(viewed(**mixing, network__views=1, seed=1))
    assert computed == ["features", "view 1 of 1"]
    store(viewed(**mixing, network__views=1, data__unseen_domain="plain"))
    assert computed == ["features", "view 1 of 1", "view 1 of 1"]


def test_a_line_says_what_is_stored_before_it_is(cache: Path) -> None:
    told: list[str] = []
    display = SilentDisplay(told.append)
    stored = store(viewed(), display)
    (line,) = display.remarks
    number = len(stored.copied_rows)
    assert line.startswith(f"features of 2 views of {number:,} images are stored, once for all ")
    assert line.endswith(" MB")
    assert any(text.startswith("computing view 2 of 2 of images ") for text in told)
    display = SilentDisplay()
    store(viewed(), display)
    assert display.remarks == []


def test_a_full_disk_is_noticed_before_the_first_view(
    cache: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FeatureFile, "size", property(lambda self: 10**18))
    with pytest.raises(Exception, match=r"choose fewer network\.views"):
        store(viewed())
    assert computed == []


def test_what_another_process_makes_is_waited_for(
    cache: Path, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It claims the first view; this process makes the others, and takes over once it gives up."""
    files: list[FeatureFile] = []

    def remembered(versions: list[features.Version], display: SilentDisplay) -> Any:
        files.extend(version.file for version in versions)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(features, "complete", remembered)
        with pytest.raises(InterruptedError):
            store(viewed())
    claimed, released, told = threading.Event(), threading.Event(), list[str]()
    store(viewed(network__views=0))

    def hold() -> None:
        with files[1].claimed():
            claimed.set()
            released.wait(60)

    def tell(text: str) -> None:
        told.append(text)
        if text.startswith("another process computes"):
            released.set()

    holder = threading.Thread(target=hold)
    holder.start()
    claimed.wait(60)
    store(viewed(), SilentDisplay(tell))
    holder.join(60)
    assert computed == ["features", "view 2 of 2", "view 1 of 2"]


@pytest.mark.parametrize("method", ["dann", "reweighting", "importance", "metareg"])
def test_methods_of_every_kind_train_from_them(method: str, tmp_path: Path) -> None:
    setting = "adaptation" if method in {"dann", "reweighting"} else "generalization"
    assert train(viewed(f"digits/{method}", setting=setting), tmp_path / "run").finished


def test_training_sees_views_and_measuring_does_not(tmp_path: Path) -> None:
    """Of weights that stay as they are, the accuracies are equal, the losses are not."""
    runs = [train(viewed(network__views=k, **STILL), tmp_path / str(k)) for k in (0, 2)]
    one, other = (run.read_metrics() for run in runs)
    measured = [[r["validation"] for r in log if "validation" in r] for log in (one, other)]
    assert measured[0] == measured[1]
    losses = [[r["loss"] for r in log if "loss" in r] for log in (one, other)]
    assert losses[0] != losses[1]
