"""One pass over validation images at the end of a run: what forecasts compare new images with."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.feed import Feed
from unseen.forecast.disagreement import disagreement
from unseen.forecast.profile import Observed, Profile
from unseen.forecast.projection import project
from unseen.methods.base import Method
from unseen.methods.kinds import DomainAware
from unseen.networks.stages import Network
from unseen.training.build import Images
from unseen.training.last_pass.statistics import statistics_of
from unseen.training.pictures import evenly, penultimate

ANSWERED = 500
"""Validation images of a domain that are answered, evenly spaced."""
DESCRIBED = 200
"""Of these, images whose statistics and features are kept."""

Autocast = Callable[[], AbstractContextManager[Any]]


class Answerer(NamedTuple):
    """A method, and where it gets its images from."""

    method: Method
    feed: Feed
    autocast: Autocast = nullcontext

    @torch.no_grad()
    def observe(self, rows: np.ndarray, described: np.ndarray) -> Observed:
        """Scores of some images, and features of others."""
        was_training = self.method.training
        if was_training:
            self.method.eval()
        try:
            scores, apart = self._answers(rows)
            batches = self.feed.unlabelled(described)
            return Observed(scores, apart, None, pooled_features(self.method.network, batches))
        finally:
            if was_training:
                self.method.train()

    def _answers(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores, and how far the domains' opinions lie apart."""
        if not isinstance(self.method, DomainAware):
            return np.concatenate([scores for (scores,) in self._over(rows, self._scores)]), None
        parts = list(self._over(rows, self._scores_and_opinions))
        scores, opinions = (np.concatenate(each) for each in zip(*parts, strict=True))
        return scores, disagreement(opinions).astype(np.float32)

    def _scores(self, images: Tensor) -> tuple[Tensor, ...]:
        return (self.method.predict(images),)

    def _scores_and_opinions(self, images: Tensor) -> tuple[Tensor, ...]:
        assert isinstance(self.method, DomainAware)
        scores, opinions = self.method.scores_and_opinions(images)
        return scores, opinions.transpose(0, 1).float().softmax(dim=2)

    def _over(
        self, rows: np.ndarray, compute: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> Iterator[tuple[np.ndarray, ...]]:
        for images in self.feed.unlabelled(rows):
            with self.autocast():
                found = compute(images)
            yield tuple(each.float().cpu().numpy() for each in found)


def pooled_features(network: Network, batches: Iterable[Tensor]) -> np.ndarray | None:
    """The classifier's input, projected; None where there are no images, or a network
    has none, or they are not numbers."""
    try:
        parts = [penultimate(network, images).cpu().numpy() for images in batches]
        values = project(np.concatenate(parts))
    except (RuntimeError, ValueError, IndexError, KeyError):
        return None
    return values if np.isfinite(values).all() else None


def make_profile(answerer: Answerer, images: Images) -> Profile:
    """For the weights that the method has now; of validation images only."""
    index = images.prepared.index
    chosen = {name: evenly(rows, ANSWERED) for name, rows in images.roles.validation.items()}
    rows = np.concatenate(list(chosen.values()))
    places = np.concatenate(
        [np.full(len(own), number) for number, own in enumerate(chosen.values())]
    )
    described = np.concatenate(
        [evenly(np.flatnonzero(places == number), DESCRIBED) for number in range(len(chosen))]
    )
    found = answerer.observe(rows, rows[described])
    return Profile(
        classes=tuple(index.classes),
        domains=tuple(chosen),
        domain=places,
        label=index.labels[rows],
        scores=np.nan_to_num(found.scores),
        disagreement=found.disagreement,
        described=described,
        statistics=statistics_of(images.prepared, images.dataset, rows[described]),
        features=found.features,
    )
