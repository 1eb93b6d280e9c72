"""Counting answers, and the three questions they are asked under."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.data.feed import Process
from unseen.results.measure import N_BINS, Counts, Evaluator, three_views

CPU = torch.device("cpu")
ALONE = Process(CPU)
LABELS = torch.tensor([0, 1, 2, 2, 1])


def batches(rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """Two images at a time; an image is the number of its row."""
    for start in range(0, len(rows), 2):
        own = torch.from_numpy(rows[start : start + 2])
        yield own, LABELS[own]


def always(answer: int, images: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(torch.full_like(images, answer), 3).float() * 50


def evaluator(n_models: int = 1) -> Evaluator:
    return Evaluator(batches, 3, ALONE, lambda counts: counts, n_models)


def test_answers_and_confidence_are_counted() -> None:
    counts = Counts(1, 2, CPU)
    even = torch.zeros(1, 2)  # half sure, and right about the first of two classes
    sure = torch.tensor([[0.0, 40.0]])
    for scores, label in ((even, 0), (even, 1), (sure, 1)):
        counts.add(scores, torch.tensor([label]))
    (result,) = counts.results()
    assert result.confusion.tolist() == [[1, 0], [1, 1]]
    assert (result.images, result.correct, result.accuracy) == (3, 2, pytest.approx(2 / 3))
    bins = result.calibration
    assert len(bins.images) == N_BINS
    assert (bins.images[7], bins.confidence[7], bins.correct[7]) == (2, pytest.approx(1.0), 1)
    assert (bins.images[-1], bins.confidence[-1], bins.correct[-1]) == (1, pytest.approx(1.0), 1)
    assert bins.error == pytest.approx(0.0)


def test_domains_are_measured_apart_and_empty_ones_left_out() -> None:
    images = {"photo": np.array([0, 1, 2]), "empty": np.array([], int), "art": np.array([3, 4])}
    (measured,) = evaluator().measure(lambda rows, domain: always(2, rows), images)
    assert {name: each.accuracy for name, each in measured.items()} == {
        "photo": pytest.approx(1 / 3),
        "art": pytest.approx(1 / 2),
    }


def test_a_known_domain_is_told_by_its_position() -> None:
    told: list[int | None] = []

    def predict(rows: Tensor, domain: int | None) -> Tensor:
        told.append(domain)
        return always(0 if domain is None else domain, rows)

    images = {"empty": np.array([], int), "photo": np.array([0]), "art": np.array([2])}
    (measured,) = evaluator().measure(predict, images, known=True)
    assert told == [1, 2]
    assert measured["art"].accuracy == 1.0


def test_several_models_answer_at_once() -> None:
    def predict(rows: Tensor, domain: int | None) -> Tensor:
        return torch.stack([always(answer, rows) for answer in range(3)])

    each = evaluator(3).measure(predict, {"photo": np.arange(5)})
    assert [measured["photo"].correct for measured in each] == [1, 2, 2]


@pytest.mark.parametrize("uses_domain", [True, False])
def test_three_views(uses_domain: bool) -> None:
    def predict(rows: Tensor, domain: int | None) -> Tensor:
        return always(2 if domain is None else 1, rows)

    inside, outside = {"photo": np.array([0, 1, 2])}, {"sketch": np.array([2, 3])}
    (views,) = three_views(evaluator(), predict, uses_domain, outside, inside)
    assert list(views) == ["out_of_domain", "in_domain", "known_domain"]
    assert views["out_of_domain"]["sketch"].accuracy == 1.0
    assert (views["in_domain"] == views["known_domain"]) != uses_domain


def test_counts_are_added_over_devices() -> None:
    two = Evaluator(batches, 3, ALONE, lambda counts: 2 * counts)
    (measured,) = two.measure(lambda rows, domain: always(2, rows), {"photo": np.arange(5)})
    assert (measured["photo"].images, measured["photo"].correct) == (10, 4)
