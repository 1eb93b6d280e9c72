"""One pass over validation images at the end of a run: what forecasts compare new images with."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset, PartsDataset
from unseen.data.feed import Feed
from unseen.data.prepare import PreparedImages
from unseen.errors import UnseenError
from unseen.forecast.profile import (
    STATISTICS,
    VERSION,
    ModelOutputs,
    Profile,
    disagreement,
    image_statistics,
    project,
)
from unseen.methods.base import DomainAware, Method
from unseen.networks.stages import Network
from unseen.results.statistics import evenly
from unseen.training.build import Images
from unseen.training.pictures import penultimate


def statistics_of(prepared: PreparedImages, dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Returns `[rows, statistics]` of the images as they were before they were prepared; read once,
    and kept in the cache for every run on the same images."""
    about = hashlib.sha256(f"{VERSION} {STATISTICS} {prepared.content}".encode())
    about.update(np.asarray(rows, dtype=np.int64).tobytes())
    file = cache_folder() / "statistics" / f"{about.hexdigest()[:32]}.npy"
    try:
        found = np.load(file, allow_pickle=False)
        if found.shape == (len(rows), len(STATISTICS)):
            return found
    except (OSError, ValueError):
        pass
    found = _measure(dataset, [prepared.index.names[row] for row in rows])
    with atomic_file(file) as temporary, temporary.open("wb") as open_file:
        np.save(open_file, found)
    return found


def _measure(dataset: Dataset, names: list[str]) -> np.ndarray:
    """Measures images by name: those that were left out have moved the others up."""
    positions = {name: position for position, name in enumerate(dataset.index().names)}
    found = np.full((len(names), len(STATISTICS)), np.nan, dtype=np.float32)
    for row, name in enumerate(names):
        try:
            position = positions[name]
            in_memory = isinstance(dataset, PartsDataset)
            size = None if in_memory else len(dataset.content(position))
            found[row] = image_statistics(dataset.read(position), size)
        except (UnseenError, KeyError):  # it has gone since it was prepared
            continue
    return found


ANSWERED = 500
"""Validation images of a domain that are answered, evenly spaced."""
DESCRIBED = 200
"""Of these, images whose statistics and features are kept."""

Autocast = Callable[[], AbstractContextManager[Any]]


@torch.no_grad()
def observe(
    method: Method,
    feed: Feed,
    rows: np.ndarray,
    described: np.ndarray,
    autocast: Autocast = nullcontext,
) -> ModelOutputs:
    """Returns what a method in evaluation mode makes of images: scores of some, and how far the
    domains' opinions lie apart; features of others."""
    aware = method if isinstance(method, DomainAware) else None
    scores, opinions = [], []
    for images in feed.images(rows):
        with autocast():
            if aware is None:
                found = method.predict(images)
            else:
                found, apart = aware.scores_and_opinions(images)
                opinions.append(apart.transpose(0, 1).float().softmax(dim=2).cpu().numpy())
        scores.append(found.float().cpu().numpy())
    divergence = disagreement(np.concatenate(opinions)).astype(np.float32) if aware else None
    features = pooled_features(method.network, feed.images(described))
    return ModelOutputs(np.concatenate(scores), divergence, None, features)


def pooled_features(network: Network, batches: Iterable[Tensor]) -> np.ndarray | None:
    """Returns the classifier's input, projected; None where there are no images, or a network
    has none, or they are not numbers."""
    try:
        parts = [penultimate(network, images).cpu().numpy() for images in batches]
        values = project(np.concatenate(parts))
    except (RuntimeError, ValueError, IndexError, KeyError):
        return None
    return values if np.isfinite(values).all() else None


def make_profile(
    method: Method, feed: Feed, images: Images, autocast: Autocast = nullcontext
) -> Profile:
    """Returns the profile for the weights that the method has now, in evaluation mode; it looks at
    validation images only."""
    index = images.prepared.index
    chosen = {name: evenly(rows, ANSWERED) for name, rows in images.roles.validation.items()}
    rows = np.concatenate(list(chosen.values()))
    places = np.concatenate(
        [np.full(len(own), number) for number, own in enumerate(chosen.values())]
    )
    described = np.concatenate(
        [evenly(np.flatnonzero(places == number), DESCRIBED) for number in range(len(chosen))]
    )
    found = observe(method, feed, rows, rows[described], autocast)
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
