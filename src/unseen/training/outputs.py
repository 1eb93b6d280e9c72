"""What a run keeps of its model besides numbers, from passes over images at its end: what forecasts
compare new images with, and for its report the most confident mistakes and features for a map."""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset, PartsDataset
from unseen.data.feed import Feed
from unseen.data.prepare import PreparedImages
from unseen.errors import UnseenError
from unseen.forecast import profile
from unseen.forecast.profile import ModelOutputs, Profile
from unseen.methods.base import DomainAware, Method
from unseen.networks.heatmaps import heatmaps
from unseen.networks.stages import Network
from unseen.results.statistics import evenly
from unseen.training.build import Images

ANSWERED = 500
"""Validation images of a domain that are answered, evenly spaced."""
DESCRIBED = 200
"""Of these, images whose statistics and features are kept."""
MISTAKES = 24  # for each unseen domain
LOOKED_AT = 640  # images of an unseen domain, evenly spaced, so that this takes seconds
MAPPED = 128  # images of a domain whose features are kept
COMPONENTS = 50
_LARGEST = 96  # pixels of a thumbnail's side
_THUMBNAIL_BYTES = 700_000  # for all thumbnails of a run
_NAME = 120  # letters of an image's name, its last ones

Autocast = Callable[[], AbstractContextManager[Any]]


def make_profile(
    method: Method, feed: Feed, images: Images, autocast: Autocast = nullcontext
) -> Profile:
    """Returns the profile for the weights that the method has now, in evaluation mode; it looks at
    validation images only."""
    index = images.prepared.index
    chosen = {name: evenly(rows, ANSWERED) for name, rows in images.roles.validation.items()}
    rows = np.concatenate(list(chosen.values()))
    places = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen.values()])
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
                found, opinion = aware.scores_and_opinions(images)
                opinions.append(opinion.transpose(0, 1).float().softmax(dim=2).cpu().numpy())
        scores.append(found.float().cpu().numpy())
    apart = profile.disagreement(np.concatenate(opinions)).astype(np.float32) if aware else None
    features = pooled_features(method.network, feed.images(described))
    return ModelOutputs(np.concatenate(scores), apart, None, features)


def pooled_features(network: Network, batches: Iterable[Tensor]) -> np.ndarray | None:
    """Returns the classifier's input, projected; None where there are no images, or a network
    has none, or they are not numbers."""
    values = features_of(network, batches)
    return None if values is None else profile.project(values)


def features_of(network: Network, batches: Iterable[Tensor]) -> np.ndarray | None:
    """Returns the classifier's input, `[images, width]`; None as above."""
    try:
        values = np.concatenate([penultimate(network, images).cpu().numpy() for images in batches])
    except (RuntimeError, ValueError, IndexError, KeyError):
        return None
    return values if values.ndim == 2 and np.isfinite(values).all() else None


def statistics_of(prepared: PreparedImages, dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    """Returns `[rows, statistics]` of the images as they were before they were prepared; read once,
    and kept in the cache for every run on the same images."""
    about = hashlib.sha256(f"{profile.VERSION} {profile.STATISTICS} {prepared.content}".encode())
    about.update(np.asarray(rows, dtype=np.int64).tobytes())
    shape = (len(rows), len(profile.STATISTICS))
    file = cache_folder() / "statistics" / f"{about.hexdigest()[:32]}.npy"
    try:
        found = np.load(file, allow_pickle=False)
        if found.shape == shape:
            return found
    except (OSError, ValueError):
        pass
    # by name: images that were left out have moved the others up
    positions = {name: position for position, name in enumerate(dataset.index().names)}
    found = np.full(shape, np.nan, dtype=np.float32)
    for number, row in enumerate(rows):
        with suppress(UnseenError, KeyError):  # it has gone since it was prepared
            position = positions[prepared.index.names[row]]
            in_memory = isinstance(dataset, PartsDataset)
            size = None if in_memory else len(dataset.content(position))
            found[number] = profile.image_statistics(dataset.read(position), size)
    with atomic_file(file) as temporary, temporary.open("wb") as open_file:
        np.save(open_file, found)
    return found


@torch.no_grad()
def draw(
    method: Method, feed: Feed, images: Images, autocast: Autocast = nullcontext
) -> dict[str, np.ndarray]:
    """Returns what pictures.npz holds, for the weights that the method has now; it is in evaluation
    mode."""
    roles = images.roles
    domains = tuple(dict.fromkeys((*roles.training_domains, *roles.unseen_domains)))
    mistakes = _mistakes(method, feed, images, domains, autocast)
    held_out = {**roles.in_domain, **roles.out_of_domain}
    chosen = {name: evenly(rows, MAPPED) for name, rows in held_out.items() if len(rows)}
    rows = np.concatenate(list(chosen.values()))
    values = features_of(method.network, feed.images(rows))
    features = {}
    if values is not None:
        places = [np.full(len(own), domains.index(name)) for name, own in chosen.items()]
        features = {
            "features/values": principal_components(values, COMPONENTS),
            "features/domain": np.concatenate(places).astype(np.int16),
            "features/label": images.prepared.index.labels[rows].astype(np.int32),
        }
    return {"domains": np.array(domains), **mistakes, **features}


def _mistakes(
    method: Method, feed: Feed, images: Images, domains: tuple[str, ...], autocast: Autocast
) -> dict[str, np.ndarray]:
    """Returns the mistakes by unseen domain, the most confident first, and where the model looked,
    0 to 255; that not where features have no places."""
    index = images.prepared.index
    found: list[tuple[np.ndarray, ...]] = []
    for name, available in images.roles.out_of_domain.items():
        rows = evenly(available, LOOKED_AT)
        with autocast():
            scores = torch.cat([method.predict(batch).float().cpu() for batch in feed.images(rows)])
        confidence, called = (part.numpy() for part in scores.softmax(dim=1).max(dim=1))
        wrong = np.flatnonzero(called != index.labels[rows])
        worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:MISTAKES]
        place = np.full(len(worst), domains.index(name))
        found.append((rows[worst], called[worst], confidence[worst], place))
    if not sum(len(rows) for rows, *_ in found):
        return {}
    rows, predicted, confidence, place = map(np.concatenate, zip(*found, strict=True))
    heat: list[np.ndarray] = []
    for batch in feed.images(rows):
        with autocast():
            looked_at = heatmaps(method, method.network, method.predict, batch)
        if looked_at is not None:
            heat.append((255 * looked_at).round().byte().cpu().numpy())
    return {
        "mistakes/images": _thumbnails(images.prepared.batch(rows)),
        "mistakes/domain": place.astype(np.int16),
        "mistakes/true": index.labels[rows].astype(np.int32),
        "mistakes/predicted": predicted.astype(np.int32),
        "mistakes/confidence": confidence.astype(np.float32),
        "mistakes/name": np.array([index.names[row][-_NAME:] for row in rows]),
        **({"mistakes/heat": np.concatenate(heat)} if heat else {}),
    }


def penultimate(network: Network, images: Tensor) -> Tensor:
    """Returns the input of the classifier; of a network that a method has cut, all that is left of
    it."""
    whole = network.head == next(reversed(network.input_shapes))
    return pooled(network.run(images, until=network.head) if whole else network(images))


def pooled(x: Tensor) -> Tensor:
    """Turns features to `[images, width]`: means over tokens, or over places."""
    if x.ndim == 3:  # tokens
        return x.mean(dim=1).float()
    return x.flatten(2).mean(dim=2).float() if x.ndim == 4 else x.flatten(1).float()


def principal_components(values: np.ndarray, number: int) -> np.ndarray:
    """The directions of largest variance, scaled to a spread of one over all: small in float16.

    Runs on the same stored features ask for the same ones: the latest answers are remembered.
    """
    return _components(values.tobytes(), values.dtype.str, values.shape, number)


@lru_cache(maxsize=8)
def _components(data: bytes, kind: str, shape: tuple[int, ...], number: int) -> np.ndarray:
    centred = np.frombuffer(data, kind).reshape(shape).astype(np.float64)
    centred -= centred.mean(axis=0)
    few_rows = len(centred) <= centred.shape[1]  # the smaller product of the matrix with itself
    product = centred @ centred.T if few_rows else centred.T @ centred
    squares, directions = (values[..., ::-1] for values in np.linalg.eigh(product))
    columns = directions * np.sqrt(squares.clip(0)) if few_rows else centred @ directions
    kept = columns[:, :number]  # along which the variance is largest
    return (kept / (kept.std() or 1.0)).astype(np.float16)


def _thumbnails(images: Tensor) -> np.ndarray:
    """uint8 `[n, side, side, 3]`, small enough that all of them fit."""
    fits = int((_THUMBNAIL_BYTES / (3 * len(images))) ** 0.5)
    side = min(images.shape[-1], _LARGEST, fits)
    if side < images.shape[-1]:
        images = functional.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images.permute(0, 2, 3, 1).contiguous().numpy()
