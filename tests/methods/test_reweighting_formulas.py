"""Sample re-weighting against densities that are known, and numbers worked by hand."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.methods import batches
from tests.methods.batches import network_of
from torch import Tensor, nn

from unseen.data.batch import DomainBatch, Task
from unseen.errors import DataError, SettingsError, UnseenError
from unseen.methods import reweighting
from unseen.methods.base import Progress, TrainingImages
from unseen.methods.reweighting import (
    Reweighting,
    effective_sample_size,
    judge,
    largest_weight,
    tempered,
)
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.settings.experiment import NetworkSettings

TASK = Task(("one", "two", "three"), ("photo", "sketch"), target="cartoon")


@pytest.fixture(autouse=True)
def _small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reweighting, "_TREES", 20)


def settings(**values) -> Reweighting.Config:
    return Reweighting.Config(name="reweighting", **values)


def make(task: Task = TASK, network: Network | None = None, **values) -> Reweighting:
    torch.manual_seed(0)
    cnn = NetworkSettings(name="small_cnn", image_size=16)
    return Reweighting(network or build_network(cnn, 3), task, settings(**values))


def on_rows(**values) -> Reweighting:
    """A network whose input and features are the pixels themselves: 3 × 2 × 2 numbers."""
    return make(network=network_of({"flatten": nn.Flatten(), "head": nn.Linear(12, 3)}), **values)


def batch_of(images: Tensor, positions: Tensor) -> DomainBatch:
    batch = batches.batch_of([0] * len(images))
    return batch._replace(images=images, positions=positions)


def training_images(source: Tensor, positions: Tensor, target: Tensor) -> TrainingImages:
    def batches() -> Iterator[DomainBatch]:
        for start in range(0, len(source), 64):
            part = slice(start, start + 64)
            yield batch_of(source[part], positions[part])

    return TrainingImages(batches, lambda: iter(target.split(50)))


def clouds(distance: float, n: int = 600, n_target: int = 300) -> tuple[Tensor, Tensor]:
    """Gaussian clouds whose centres differ in the first number; images of 3 × 2 × 2."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(n, 3, 2, 2, generator=generator)
    target = torch.randn(n_target, 3, 2, 2, generator=generator)
    target[:, 0, 0, 0] += distance
    return source, target


def after_pass(distance: float, **values) -> tuple[Reweighting, Tensor]:
    source, target = clouds(distance)
    method = on_rows(**values)
    method.use_dataset_pass(
        method.dataset_pass(training_images(source, torch.arange(len(source)), target))
    )
    return method, source


@pytest.mark.parametrize(
    ("features", "classifier", "least"),
    [("network", "logistic", 0.9), ("pixels", "logistic", 0.9), ("network", "forest", 0.7)],
)
def test_weights_are_the_density_ratio(features: str, classifier: str, least: float) -> None:
    """N(1, 1) over N(0, 1) is exp(x − 1/2), whatever the numbers of images."""
    method, source = after_pass(1.0, classifier=classifier, features=features)
    expected = source[:, 0, 0, 0] - 0.5
    found = method.weights.log()
    assert method.weights.mean().item() == pytest.approx(1.0, abs=1e-5)
    assert torch.corrcoef(torch.stack([found, expected]))[0, 1] > least
    if classifier == "logistic":
        torch.testing.assert_close(found.mean(), expected.mean(), atol=0.15, rtol=0)
        slope = (found * expected).mean() / (expected * expected).mean()
        assert slope.item() == pytest.approx(1.0, abs=0.2)


def test_odds_are_corrected_for_the_numbers_of_images_on_each_side() -> None:
    """Of the same distribution three times as many source images: the ratio is 1, not 1/3."""
    source, target = (part.flatten(1).numpy() for part in clouds(0.0, 900, 300))
    assert np.exp(judge(source, target, settings())[0]).mean() == pytest.approx(1, abs=0.1)
    few, _, _ = judge(source, target, settings(images_per_side=200))
    assert np.exp(few).mean() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("values", [{}, {"classifier": "forest"}, {"features": "pixels"}])
def test_without_overlap_there_is_a_warning_that_names_what_helps(values: dict[str, str]) -> None:
    method, source = after_pass(12.0, **values)
    found = method.statistics()
    assert found["auc"] > 0.99
    warning = method.remarks[1]
    assert "source and cartoon hardly overlap" in warning
    assert "method.temper=0.5" in warning
    assert ("method.regularisation=100" in warning) == ("classifier" not in values)
    assert ("method.features=pixels" in warning) == ("features" not in values)
    assert method.weights.isfinite().all()
    assert method.weights.max() <= 10 * (1 + 1e-5)
    assert found["effective_sample_size"] >= len(source) / 10


def test_a_weaker_classifier_and_clipping_leave_a_larger_sample() -> None:
    strong, weak = (after_pass(3.0, clip=2.0, regularisation=r)[0].statistics() for r in (1, 1e4))
    assert weak["unclipped_sample_size"] > 2 * strong["unclipped_sample_size"]
    assert strong["effective_sample_size"] > strong["unclipped_sample_size"]
    assert 0 < strong["share_clipped"] < 0.5


def test_no_image_is_judged_by_a_classifier_that_has_seen_it() -> None:
    """More numbers than images: in sample everything is told apart, out of fold nothing is."""
    generator = np.random.default_rng(0)
    source, target = generator.normal(size=(150, 400)), generator.normal(size=(150, 400))
    for classifier in ("logistic", "forest"):
        _, auc, _ = judge(source, target, settings(classifier=classifier))
        assert auc == pytest.approx(0.5, abs=0.1)


def test_the_cap_is_on_what_is_fitted_all_images_are_judged() -> None:
    source, target = (part.flatten(1).numpy() for part in clouds(1.0))
    full, few, again, folds = (
        judge(source, target, settings(**values))[0]
        for values in ({}, {"images_per_side": 60}, {"images_per_side": 60}, {"folds": 10})
    )
    assert len(few) == np.isfinite(few).sum() == 900
    assert np.array_equal(few, again)
    assert not np.allclose(few, full)
    assert not np.allclose(folds, full)


def test_tempering_by_hand() -> None:
    odds = np.log(np.array([1.0, 4.0, 16.0]))
    assert tempered(odds, 1.0) == pytest.approx([1 / 16, 1 / 4, 1])
    assert tempered(odds, 0.5) == pytest.approx([1 / 4, 1 / 2, 1])
    assert tempered(np.array([0.0, 5000.0]), 1.0) == pytest.approx([0, 1])
    assert torch.equal(after_pass(2.0, temper=0.0)[0].weights, torch.ones(600))


def test_clipping_and_effective_sample_size_by_hand() -> None:
    """(1, 1, 1, 1, 16) cut at 8/3 has the mean 4/3: the largest counts twice the average. Where two
    are cut, t = 2 · (1+1+1) / (5 − 2·2) = 6."""
    rows = [([1, 1, 16, 1, 1], 8 / 3), ([1] * 5, 2), ([1, 1, 1, 50, 100], 6)]
    for weights, expected in [*rows, ([1e-300, 1e-300, 1], 4e-300)]:
        assert largest_weight(np.array(weights, float), 2.0) == pytest.approx(expected, abs=0)
    assert effective_sample_size(np.ones(7)) == pytest.approx(7)
    assert effective_sample_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)


def test_the_loss_is_the_mean_of_weighted_cross_entropies() -> None:
    method = make()
    method.positions, method.weights = torch.tensor([2, 5, 9]), torch.tensor([0.5, 2.0, 0.25])
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    batch = batch_of(images, torch.tensor([9, 2, 5, 9]))
    each = nn.functional.cross_entropy(method.network(images), batch.labels, reduction="none")
    losses = method.loss(batch, Progress(0, 1))
    expected = (0.25 * each[0] + 0.5 * each[1] + 2 * each[2] + 0.25 * each[3]) / 4
    torch.testing.assert_close(losses["loss"], expected)
    torch.testing.assert_close(losses["unweighted"], each.mean())


def test_weights_find_their_images_in_any_order() -> None:
    """The pass may come in another order than that of the positions."""
    source, target = clouds(1.0)
    positions = torch.randperm(600, generator=torch.Generator().manual_seed(3)) * 7
    method = on_rows()
    method.use_dataset_pass(method.dataset_pass(training_images(source, positions, target)))
    plain, _ = after_pass(1.0)
    torch.testing.assert_close(method.weights[positions.argsort().argsort()], plain.weights)


@pytest.mark.parametrize("position", [3, 100])
def test_an_image_without_a_weight_stops_the_run(position: int) -> None:
    method, batch = make(), batch_of(torch.zeros(1, 3, 16, 16), torch.tensor([position]))
    for known in ([], [2, 5]):
        method.positions, method.weights = torch.tensor(known).long(), torch.ones(len(known))
        with pytest.raises(UnseenError, match=f"knows {len(known)} of them"):
            method.loss(batch, Progress(0, 1))


def test_the_pass_leaves_the_network_as_it_is() -> None:
    method = make().train()
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    source = torch.randn(40, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    found = method.dataset_pass(training_images(source, torch.arange(40), source[:20] + 1))
    assert method.network.training
    assert all(torch.equal(before[name], t) for name, t in method.state_dict().items())
    method.use_dataset_pass(found)
    assert list(method.state_dict()) == list(before)  # weights are kept with the run, not the model


def test_records_are_complete() -> None:
    method, _ = after_pass(1.0)
    arrays, histogram = method.arrays(), method.statistics()["histogram"]
    assert set(arrays) == {"positions", "weights", "histogram_counts", "histogram_edges"}
    assert histogram["counts"] == arrays["histogram_counts"].tolist()
    assert sum(histogram["counts"]) == 600
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    assert (make().statistics(), make().arrays(), make().remarks) == ({}, {}, ())


def test_a_regression_that_does_not_converge_is_a_remark_not_a_warning(monkeypatch) -> None:
    from sklearn import linear_model

    class Hasty(linear_model.LogisticRegression):
        def __init__(self, C: float = 1.0, max_iter: int = 1) -> None:
            super().__init__(C=C, max_iter=1)

    monkeypatch.setattr(linear_model, "LogisticRegression", Hasty)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method, _ = after_pass(1.0)
    assert method.remarks[-1].startswith("the logistic regression did not converge")


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (torch.arange(12.0).reshape(2, 3, 2), [[2.0, 3.0], [8.0, 9.0]]),  # 3 tokens of 2 numbers
        (torch.ones(2, 5), [[1.0] * 5] * 2),
        (torch.ones(2, 3, 32, 32), [[1.0] * 3 * 8 * 8] * 2),
    ],
)
def test_stored_features_and_tokens_serve_as_well(images: Tensor, expected: list) -> None:
    assert make(features="pixels")._features([images]).tolist() == expected


def test_mistakes_are_named() -> None:
    with pytest.raises(SettingsError, match="setting=adaptation"):
        make(TASK._replace(target=None))
    with pytest.raises(DataError, match=r"3 target images are too few for method\.folds=5"):
        judge(np.zeros((50, 2)), np.zeros((3, 2)), settings())
