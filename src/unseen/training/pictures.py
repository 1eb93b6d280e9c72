"""What a report shows besides numbers: the most confident mistakes, and features for a map."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from unseen.data.feed import Feed
from unseen.methods.base import Method
from unseen.networks.stages import Network
from unseen.results.statistics import evenly
from unseen.training.build import Images

MISTAKES = 24  # for each unseen domain
LOOKED_AT = 640  # images of an unseen domain, evenly spaced, so that this takes seconds
MAPPED = 128  # images of a domain whose features are kept
COMPONENTS = 50
_LARGEST = 96  # pixels of a thumbnail's side
_THUMBNAIL_BYTES = 700_000  # for all thumbnails of a run
_NAME = 120  # letters of an image's name, its last ones


@torch.no_grad()
def draw(
    method: Method,
    feed: Feed,
    images: Images,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> dict[str, np.ndarray]:
    """Returns what pictures.npz holds, for the weights that the method has now; it is in evaluation
    mode."""

    def predict(batch: Tensor) -> Tensor:
        with autocast():
            return method.predict(batch)

    roles = images.roles
    domains = tuple(dict.fromkeys((*roles.training_domains, *roles.unseen_domains)))
    model = _Model(predict, method.network, feed)
    arrays = {"domains": np.array(domains), **_mistakes(model, images, domains)}
    return arrays | _features(model, images, domains)


class _Model(NamedTuple):
    predict: Callable[[Tensor], Tensor]
    network: Network
    feed: Feed

    def over(self, rows: np.ndarray, compute: Callable[[Tensor], Tensor]) -> np.ndarray:
        batches: Iterator[Tensor] = self.feed.images(rows)
        return torch.cat([compute(images).cpu() for images in batches]).numpy()


def _mistakes(model: _Model, images: Images, domains: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns the mistakes by unseen domain, the most confident first."""
    index = images.prepared.index
    rows, predicted, confidences, domain_of = [], [], [], []
    for name, available in images.roles.out_of_domain.items():
        looked_at = evenly(available, LOOKED_AT)
        confidence, called = _answers(model, looked_at)
        wrong = np.flatnonzero(called != index.labels[looked_at])
        worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:MISTAKES]
        rows.append(looked_at[worst])
        predicted.append(called[worst])
        confidences.append(confidence[worst])
        domain_of.append(np.full(len(worst), domains.index(name)))
    if not rows or not sum(map(len, rows)):
        return {}
    chosen = np.concatenate(rows)
    return {
        "mistakes/images": _thumbnails(images.prepared.batch(chosen)),
        "mistakes/domain": np.concatenate(domain_of).astype(np.int16),
        "mistakes/true": index.labels[chosen].astype(np.int32),
        "mistakes/predicted": np.concatenate(predicted).astype(np.int32),
        "mistakes/confidence": np.concatenate(confidences).astype(np.float32),
        "mistakes/name": np.array([index.names[row][-_NAME:] for row in chosen]),
    }


def _answers(model: _Model, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the confidence and the class that the model gives each image."""

    def answer(images: Tensor) -> Tensor:
        scores = model.predict(images)
        return torch.stack(scores.float().softmax(dim=1).max(dim=1), dim=1)

    confidence, called = model.over(rows, answer).T
    return confidence, called.astype(np.int64)


def _features(model: _Model, images: Images, domains: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Returns penultimate features of images that were held out; nothing where a network has
    none."""
    held_out = {**images.roles.in_domain, **images.roles.out_of_domain}
    chosen = {name: evenly(rows, MAPPED) for name, rows in held_out.items() if len(rows)}
    rows = np.concatenate(list(chosen.values()))
    try:
        values = model.over(rows, lambda batch: penultimate(model.network, batch))
    except (RuntimeError, ValueError, IndexError, KeyError):
        return {}
    if values.ndim != 2 or not np.isfinite(values).all():
        return {}
    places = [np.full(len(own), domains.index(name)) for name, own in chosen.items()]
    return {
        "features/values": principal_components(values, COMPONENTS),
        "features/domain": np.concatenate(places).astype(np.int16),
        "features/label": images.prepared.index.labels[rows].astype(np.int32),
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
    values = np.frombuffer(data, kind).reshape(shape)
    centred = values.astype(np.float64) - values.mean(axis=0, dtype=np.float64)
    kept = _along_largest(centred)[:, :number]
    return (kept / (kept.std() or 1.0)).astype(np.float16)


def _along_largest(centred: np.ndarray) -> np.ndarray:
    """Columns of falling variance, from the smaller of the two products of a matrix with itself."""
    few_rows = len(centred) <= centred.shape[1]
    product = centred @ centred.T if few_rows else centred.T @ centred
    squares, directions = (values[..., ::-1] for values in np.linalg.eigh(product))
    return directions * np.sqrt(squares.clip(0)) if few_rows else centred @ directions


def _thumbnails(images: Tensor) -> np.ndarray:
    """uint8 `[n, side, side, 3]`, small enough that all of them fit."""
    fits = int((_THUMBNAIL_BYTES / (3 * len(images))) ** 0.5)
    side = min(images.shape[-1], _LARGEST, fits)
    if side < images.shape[-1]:
        images = functional.interpolate(images, (side, side), mode="bilinear", antialias=True)
    return images.permute(0, 2, 3, 1).contiguous().numpy()
