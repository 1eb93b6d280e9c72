"""How models are measured: their answers are counted, domain by domain, under three questions."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.feed import Process
from unseen.data.roles import Roles
from unseen.results.files import Array
from unseen.results.result import MEASURES, Calibration, DomainResult, Measured, Views, accuracy
from unseen.results.statistics import evenly, fit_temperature
from unseen.settings.experiment import Metric

N_BINS = 15


class Score(NamedTuple):
    """How well a model answers some images, in short."""

    accuracy: float
    loss: float
    """Mean cross-entropy."""
    confusion: Array

    def measure(self, metric: Metric) -> float:
        return MEASURES[metric](self.confusion)


class Counts:
    """Confusion (true class by predicted class), confidence bins and summed cross-entropy of models
    that answer the same images, as one tensor `[models, values]`. With `temperatures`, one for each
    model, there are bins for the confidence at these, too. Images whose class the models do not
    know have the label after the last one; they are wrong, and no part of the cross-entropy.

    A batch costs time by its images alone; memory is 8 bytes for each pair of classes and model,
    0.8 GB for one model with 10,000 classes.
    """

    def __init__(
        self,
        n_models: int,
        n_classes: int,
        device: torch.device,
        temperatures: Sequence[float] | None = None,
    ) -> None:
        self.n_models, self.n_classes = n_models, n_classes
        self._divisors = [torch.ones((), device=device)]
        if temperatures is not None:
            each = torch.tensor(temperatures, dtype=torch.float32, device=device)
            self._divisors.append(each.view(n_models, 1, 1))
        self._n_cells = (n_classes + 1) * n_classes
        size = self._n_cells + 3 * N_BINS * len(self._divisors) + 1
        self.values = torch.zeros(n_models, size, dtype=torch.float64, device=device)

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Counts one batch of class scores (logits), `[models, images, classes]`; without the first
        dimension for one model."""
        scores = scores.reshape(self.n_models, -1, self.n_classes).float()
        predicted = scores.argmax(dim=2)
        cells = self._places(labels * self.n_classes + predicted, self.values.shape[1])
        self.values.view(-1).index_add_(0, cells, self.values.new_ones(len(cells)))
        sums: list[Tensor] = []
        for divisor in self._divisors:
            confidence = (scores / divisor).softmax(dim=2).amax(dim=2)
            bins = self._places((confidence * N_BINS).long().clamp(0, N_BINS - 1), N_BINS)
            for weights in (torch.ones_like(confidence), confidence, predicted == labels):
                flat = weights.double().flatten()
                found = torch.bincount(bins, flat, self.n_models * N_BINS)
                sums.append(found.view(self.n_models, N_BINS))
        true = labels.clamp(max=self.n_classes - 1).expand(self.n_models, -1).unsqueeze(2)
        own = scores.log_softmax(dim=2).gather(2, true).squeeze(2)
        own = own.masked_fill(labels == self.n_classes, 0)
        sums.append(-own.double().sum(dim=1, keepdim=True))
        self.values[:, self._n_cells :] += torch.cat(sums, dim=1)

    def _places(self, own: Tensor, values: int) -> Tensor:
        """Turns positions among so many values of each model, `[models, images]`, into positions
        among those of all models."""
        models = torch.arange(self.n_models, device=own.device).unsqueeze(1)
        return (own + values * models).flatten()

    def scores(self) -> list[Score]:
        """Returns how well each model answers, in short."""
        found: list[Score] = []
        for values in self.values.cpu().numpy():
            confusion = values[: self._n_cells].reshape(-1, self.n_classes)
            known = confusion[:-1].sum()
            if confusion[-1].any():  # square, as a class that no answer names
                confusion = np.pad(confusion, ((0, 0), (0, 1)))
            else:
                confusion = confusion[:-1]
            found.append(Score(accuracy(confusion), values[-1] / max(known, 1), confusion))
        return found

    def results(self) -> list[DomainResult]:
        """Returns what is recorded of each model."""
        found: list[DomainResult] = []
        for score, values in zip(self.scores(), self.values.cpu().numpy(), strict=True):
            bins = values[self._n_cells : -1].reshape(len(self._divisors), 3, N_BINS)
            calibrations = [
                Calibration(
                    images=tuple(images.astype(int).tolist()),
                    confidence=tuple(round(each, 6) for each in confidence.tolist()),
                    correct=tuple(correct.astype(int).tolist()),
                )
                for images, confidence, correct in bins
            ]
            found.append(DomainResult.counted(score.confusion.astype(np.int64), *calibrations))
        return found


Batches = Callable[[Array], Iterable[tuple[Tensor, Tensor]]]
"""Image positions to batches of (images, labels)."""
Predict = Callable[[Tensor, int | None], Tensor]
Scores = dict[str, Score]
"""By domain."""
Add = Callable[[Tensor], Tensor]
"""Sum of a tensor over all devices."""


class DomainScores(NamedTuple):
    """What models say about images of one domain that is not told to them."""

    rows: Array
    """Positions of the images in the index."""
    scores: Tensor
    """Raw class scores (logits), float32 on the CPU: `[models, images, classes]`."""
    labels: Tensor


class Evaluator:
    """Measures a prediction function; it never sees a method, an optimizer or a loss.

    With several models, the function answers for all of them at once, `[models, images, classes]`;
    whatever is measured is a list with an entry for each model.
    """

    def __init__(
        self, batches: Batches, n_classes: int, process: Process, add: Add, n_models: int = 1
    ) -> None:
        """`batches` gives this process's share of the images: every `world_size`-th one."""
        self._batches = batches
        self._n_classes = n_classes
        self._process = process
        self._add = add
        self.n_models = n_models

    def measure(
        self,
        predict: Predict,
        images: Mapping[str, Array],
        known: bool = False,
        temperatures: Sequence[float] | None = None,
        answered: Mapping[str, DomainScores] | None = None,
    ) -> list[Measured]:
        """Returns what is recorded of each model. With `known`, the n-th domain of `images` is told
        to the model as n; images that were `answered` are not asked about again."""
        counted = self._counted(predict, images, known, temperatures, answered or {})
        results = {domain: counts.results() for domain, counts in counted}
        return [{d: each[model] for d, each in results.items()} for model in range(self.n_models)]

    def score(self, predict: Predict, images: Mapping[str, Array]) -> list[Scores]:
        """Returns what a checkpoint is chosen by, where the domain is not told."""
        counted = self._counted(predict, images, False, None, {})
        scores = {domain: counts.scores() for domain, counts in counted}
        return [{d: each[model] for d, each in scores.items()} for model in range(self.n_models)]

    @torch.no_grad()
    def _counted(
        self,
        predict: Predict,
        images: Mapping[str, Array],
        known: bool,
        temperatures: Sequence[float] | None,
        answered: Mapping[str, DomainScores],
    ) -> Iterator[tuple[str, Counts]]:
        """Yields the counts of each domain that has images."""
        device = self._process.device
        for position, (domain, rows) in enumerate(images.items()):
            if not len(rows):
                continue
            counts = Counts(self.n_models, self._n_classes, device, temperatures)
            given = answered.get(domain)
            if given is not None and np.array_equal(given.rows, rows):
                counts.add(given.scores.to(device), given.labels.to(device))
            else:
                for batch, labels in self._batches(rows):
                    counts.add(predict(batch, position if known else None), labels)
                counts.values = self._add(counts.values)
            yield domain, counts

    @torch.no_grad()
    def answers(self, predict: Predict, images: Mapping[str, Array]) -> dict[str, DomainScores]:
        """Returns the scores themselves, equal on every device, of all domains that have images."""
        found: dict[str, DomainScores] = {}
        rank, processes = self._process.rank, self._process.world_size
        for domain, rows in images.items():
            if not len(rows):
                continue
            shape, device = (self.n_models, len(rows), self._n_classes), self._process.device
            scores = torch.zeros(shape, device=device)
            labels = torch.zeros(len(rows), dtype=torch.int64, device=device)
            place = rank
            for batch, own_labels in self._batches(rows):
                end = place + processes * len(own_labels)
                own = slice(place, end, processes)
                given = predict(batch, None).reshape(self.n_models, -1, self._n_classes)
                scores[:, own], labels[own] = given.float(), own_labels
                place = end
            found[domain] = DomainScores(rows, self._add(scores).cpu(), self._add(labels).cpu())
        return found


def three_views(
    evaluator: Evaluator,
    predict: Predict,
    uses_domain: bool,
    out_of_domain: Mapping[str, Array],
    in_domain: Mapping[str, Array],
    temperatures: Sequence[float] | None = None,
    answered: Mapping[str, DomainScores] | None = None,
) -> list[Views]:
    """Measures the three views of each model; one that makes no use of the domain answers the third
    as the second. Images of training domains that were `answered` without a domain are not asked
    about again."""
    unseen = evaluator.measure(predict, out_of_domain, False, temperatures)
    seen = evaluator.measure(predict, in_domain, False, temperatures, answered)
    known = seen
    if uses_domain:
        known = evaluator.measure(predict, in_domain, True, temperatures)
    return [
        {"out_of_domain": out, "in_domain": within, "known_domain": of_known}
        for out, within, of_known in zip(unseen, seen, known, strict=True)
    ]


MOST_VALIDATION_IMAGES = 5_000
"""So many of a domain the temperature is fitted on; more would only cost memory."""


def measure_checkpoint(
    evaluator: Evaluator, predict: Predict, roles: Roles, uses_domain: bool
) -> list[tuple[Views, float]]:
    """Measures each model. Beside its views is the temperature that was fitted on the validation
    images; 1 where it could not be fitted. These images are answered first, and only once: where
    they also measure the in-domain view, these answers count."""
    few = {
        domain: evenly(rows, MOST_VALIDATION_IMAGES) for domain, rows in roles.validation.items()
    }
    validation = evaluator.answers(predict, few)
    labels = [each.labels.numpy() for each in validation.values()]
    temperatures = [
        fit_temperature([each.scores[model].numpy() for each in validation.values()], labels) or 1.0
        for model in range(evaluator.n_models)
    ]
    views = three_views(
        evaluator, predict, uses_domain, roles.out_of_domain, roles.in_domain,
        temperatures, validation,
    )  # fmt: skip
    return list(zip(views, temperatures, strict=True))
