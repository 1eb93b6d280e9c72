"""The temperature of a model, against cases that can be worked out by hand."""

import math
from collections.abc import Iterator
from statistics import fmean

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.data.feed import Process
from unseen.data.roles import Roles
from unseen.results import measure
from unseen.results.measure import Evaluator, measure_checkpoint
from unseen.results.statistics import COLDEST, HOTTEST, fit_temperature


def two_classes(gap: float, right: int, wrong: int) -> tuple[np.ndarray, np.ndarray]:
    """Always the first class by `gap`, which is right so often."""
    scores = np.tile([gap, 0.0], (right + wrong, 1))
    return scores, np.array([0] * right + [1] * wrong)


def test_confidence_becomes_the_share_of_right_answers() -> None:
    """Sigmoid(gap / T) = 3/4, so T = gap / log 3."""
    scores, labels = two_classes(4.0, right=3, wrong=1)
    assert fit_temperature([scores], [labels]) == pytest.approx(4 / math.log(3), rel=1e-5)
    shifted = scores + np.array([[5.0], [-900.0], [0.0], [1e3]])
    assert fit_temperature([shifted], [labels]) == pytest.approx(4 / math.log(3), rel=1e-5)


def test_every_domain_weighs_the_same() -> None:
    """However many images they have: the mean share of right answers is (3/4 + 1/2 + 1) / 3."""
    small, large = two_classes(2.0, 3, 1), two_classes(2.0, 200, 200)
    sure = two_classes(2.0, 10, 0)
    scores, labels = zip(small, large, sure, strict=True)
    share = fmean([3 / 4, 1 / 2, 1])
    expected = 2 / math.log(share / (1 - share))
    assert fit_temperature(scores, labels) == pytest.approx(expected, rel=1e-5)


def test_it_is_the_least_of_a_likelihood_with_many_classes() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(0, 6, (200, 5))
    labels = np.where(random.random(200) < 0.6, scores.argmax(1), random.integers(0, 5, 200))
    found = fit_temperature([scores], [labels])
    assert found is not None

    def loss(temperature: float) -> float:
        logs = torch.from_numpy(scores / temperature).log_softmax(1)
        return -float(logs[torch.arange(200), torch.from_numpy(labels)].mean())

    assert loss(found) < min(loss(0.98 * found), loss(1.02 * found), loss(1.0))


def test_limits() -> None:
    right = two_classes(4.0, 9, 0)
    assert fit_temperature([right[0]], [right[1]]) is None, "no wrong answer to fit on"
    shy = two_classes(0.01, 999, 1)
    assert fit_temperature([shy[0]], [shy[1]]) == COLDEST
    worse_than_chance = two_classes(9.0, 1, 9)
    assert fit_temperature([worse_than_chance[0]], [worse_than_chance[1]]) == HOTTEST
    nothing = np.zeros((0, 2)), np.zeros(0, int)
    assert fit_temperature([nothing[0]], [nothing[1]]) is None


LABELS = torch.tensor([0, 1, 0, 0, 1, 0, 0])


class Asked:
    """Images are numbers of rows; models favour the first class by 4, and by 8."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def predict(self, images: Tensor, domain: int | None) -> Tensor:
        self.rows += images.tolist()
        scores = torch.zeros(2, len(images), 2)
        scores[0, :, 0], scores[1, :, 0] = 4.0, 8.0
        return scores


def batches_of(process: Process):
    def batches(rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        own = rows[process.rank :: process.world_size]
        for start in range(0, len(own), 2):
            part = torch.from_numpy(own[start : start + 2])
            yield part, LABELS[part]

    return batches


def roles(in_domain: list[int]) -> Roles:
    validation = {"photo": np.array([0, 1, 2, 3]), "empty": np.array([], dtype=int)}
    inside = {"photo": np.array(in_domain)}
    outside = {"sketch": np.array([4, 5, 6])}
    nothing = np.zeros(0, dtype=int)
    return Roles(
        ("photo",),
        ("sketch",),
        {},
        validation,
        inside,
        outside,
        {"sketch": nothing},
        LABELS.numpy(),
    )


@pytest.mark.parametrize("in_domain", [[0, 1, 2, 3], [5, 6]])
def test_validation_images_are_answered_once(in_domain: list[int]) -> None:
    alone, asked = Process(torch.device("cpu")), Asked()
    evaluator = Evaluator(batches_of(alone), 2, alone, lambda values: values, n_models=2)
    both = measure_checkpoint(evaluator, asked.predict, roles(in_domain), uses_domain=False)
    expected = [0, 1, 2, 3, 4, 5, 6] + ([5, 6] if in_domain == [5, 6] else [])
    assert sorted(asked.rows) == sorted(expected)
    for gap, found in zip((4, 8), both, strict=True):
        assert found.temperature == pytest.approx(gap / math.log(3), rel=1e-5)
        seen = found.views["in_domain"]["photo"]
        if in_domain == [0, 1, 2, 3]:
            assert seen.calibrated_error == pytest.approx(0, abs=1e-5)
            assert seen.calibration_error > 0.2
        assert found.views["out_of_domain"]["sketch"].calibrated is not None


def test_scores_of_several_devices_are_put_together_in_order() -> None:
    """The sum over devices is taken by hand: what the first one found goes to the second."""
    parts: list[Tensor] = []

    def add(values: Tensor) -> Tensor:
        parts.append(values)
        return values

    found = []
    for rank in (0, 1):
        process = Process(torch.device("cpu"), rank, 2)

        def predict(images: Tensor, domain: int | None) -> Tensor:
            return images.float()[:, None] + torch.tensor([1.0, 2.0])

        evaluator = Evaluator(batches_of(process), 2, process, add)
        found.append(evaluator.answers(predict, {"photo": np.array([6, 2, 3, 0, 1])})["photo"])
    assert (found[0].scores + found[1].scores)[0, :, 0].tolist() == [7, 3, 4, 1, 2]
    assert (found[0].labels + found[1].labels).tolist() == LABELS[[6, 2, 3, 0, 1]].tolist()


def test_of_a_large_domain_some_images_fit_the_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_VALIDATION_IMAGES", 2)
    alone, asked = Process(torch.device("cpu")), Asked()
    evaluator = Evaluator(batches_of(alone), 2, alone, lambda values: values, n_models=2)
    found = measure_checkpoint(evaluator, asked.predict, roles([0, 1, 2, 3]), uses_domain=False)[0]
    assert asked.rows[:2] == [0, 3]
    assert found.views["in_domain"]["photo"].images == 4
