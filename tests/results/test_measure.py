"""Answers are counted under three questions, and the temperature is fitted on some of them."""

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.data.feed import Process
from unseen.data.roles import Roles
from unseen.results import measure
from unseen.results.measure import N_BINS, Counts, Evaluator, measure_checkpoint, three_views

CPU = torch.device("cpu")
LABELS = torch.tensor([0, 1, 2, 2, 1, 0, 0])


def batches_of(process: Process) -> Callable[[np.ndarray], Iterator[tuple[Tensor, Tensor]]]:
    """Two images at a time; an image is the number of its row."""

    def batches(rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        own = rows[process.rank :: process.world_size]
        for start in range(0, len(own), 2):
            part = torch.from_numpy(own[start : start + 2])
            yield part, LABELS[part]

    return batches


def evaluator(
    n_models: int = 1, process: Process | None = None, add: Callable[[Tensor], Tensor] = torch.clone
) -> Evaluator:
    process = process or Process(CPU)
    return Evaluator(batches_of(process), 3, process, add, n_models)


def always(answer: int, images: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(torch.full_like(images, answer), 3).float() * 50


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


def test_a_batch_costs_time_by_its_images_and_not_by_pairs_of_classes() -> None:
    """Adding all cells of the matrix for every batch took 185 ms with 3,000 classes."""
    counts, scores = Counts(1, 3000, CPU), torch.rand(2, 3000)
    started = time.process_time()
    for _ in range(50):
        counts.add(scores, torch.tensor([5, 2999]))
    assert time.process_time() - started < 2
    confusion = counts.results()[0].confusion
    assert confusion[5, scores[0].argmax()] == confusion[2999, scores[1].argmax()] == 50


def test_domains_are_measured_apart_and_empty_ones_left_out() -> None:
    images = {"photo": np.array([0, 1, 2]), "empty": np.array([], int), "art": np.array([3, 4])}
    (measured,) = evaluator().measure(lambda rows, domain: always(2, rows), images)
    found = {name: each.accuracy for name, each in measured.items()}
    assert found == {"photo": pytest.approx(1 / 3), "art": pytest.approx(1 / 2)}


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


def test_counts_and_answers_are_added_over_devices() -> None:
    two = evaluator(add=lambda counts: 2 * counts)
    (measured,) = two.measure(lambda rows, domain: always(2, rows), {"photo": np.arange(5)})
    assert (measured["photo"].images, measured["photo"].correct) == (10, 4)

    def predict(images: Tensor, domain: int | None) -> Tensor:
        return images.float()[:, None] + torch.tensor([1.0, 2.0, 3.0])

    rows = np.array([6, 2, 3, 0, 1])
    shares = [evaluator(process=Process(CPU, rank, 2)) for rank in (0, 1)]
    one, other = (each.answers(predict, {"photo": rows})["photo"] for each in shares)
    assert (one.scores + other.scores)[0, :, 0].tolist() == [7, 3, 4, 1, 2]
    assert (one.labels + other.labels).tolist() == LABELS[rows].tolist()


class Asked:
    """Two models that favour the first class, by 4 and by 8."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def predict(self, images: Tensor, domain: int | None) -> Tensor:
        self.rows += images.tolist()
        scores = torch.zeros(2, len(images), 3)
        scores[..., 2] = -1e4  # never the third
        scores[0, :, 0], scores[1, :, 0] = 4.0, 8.0
        return scores


def roles(in_domain: list[int]) -> Roles:
    """Of the four validation images, three are of the first class."""
    validation = {"photo": np.array([0, 5, 6, 1]), "empty": np.array([], dtype=int)}
    inside, outside = {"photo": np.array(in_domain)}, {"sketch": np.array([4, 2, 3])}
    target = {"sketch": np.zeros(0, dtype=int)}
    names = (("photo",), ("sketch",))
    return Roles(*names, {}, validation, inside, outside, target, LABELS.numpy())


@pytest.mark.parametrize("in_domain", [[0, 5, 6, 1], [5, 6]])
def test_validation_images_are_answered_once(in_domain: list[int]) -> None:
    asked = Asked()
    both = measure_checkpoint(evaluator(2), asked.predict, roles(in_domain), uses_domain=False)
    again = [5, 6] if in_domain == [5, 6] else []
    assert sorted(asked.rows) == sorted([*range(7), *again])
    for gap, (views, temperature) in zip((4, 8), both, strict=True):
        assert temperature == pytest.approx(gap / math.log(3), rel=1e-5)
        seen = views["in_domain"]["photo"]
        if not again:
            assert seen.calibrated_error == pytest.approx(0, abs=1e-5)
            assert seen.calibration_error > 0.2
        assert views["out_of_domain"]["sketch"].calibrated is not None


def test_of_a_large_domain_some_images_fit_the_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_VALIDATION_IMAGES", 2)
    asked, whole = Asked(), roles([0, 5, 6, 1])
    views, _ = measure_checkpoint(evaluator(2), asked.predict, whole, uses_domain=False)[0]
    assert asked.rows[:2] == [0, 1]
    assert views["in_domain"]["photo"].images == 4
