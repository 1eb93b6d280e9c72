"""Profiles and outputs that tests make up."""

from collections.abc import Sequence

import numpy as np

from unseen.forecast.profile import STATISTICS, ModelOutputs, Profile

CLASSES = ("cat", "dog", "owl")


def made_profile(
    classes: Sequence[str], domains: Sequence[str], images: int, every: int = 1, width: int = 0
) -> Profile:
    """Random but plausible numbers. Statistics of a domain lie around its number; one image out of
    `every` is described, with features of this width."""
    draws = np.random.default_rng(0)
    domain = np.arange(images) % len(domains)
    label = np.arange(images) // len(domains) % len(classes)
    scores = draws.normal(size=(images, len(classes)))
    scores[np.arange(images), label] += 3
    described = np.arange(0, images, every)
    near = domain[described, None] + draws.normal(0, 0.1, (len(described), len(STATISTICS)))
    apart = draws.uniform(0, 0.2, images).astype(np.float32)
    features = draws.normal(size=(len(described), width)).astype(np.float32) if width else None
    about = tuple(classes), tuple(domains), domain, label, scores.astype(np.float32), apart
    return Profile(*about, described, near.astype(np.float32), features)


def profile(n: int = 240, seed: int = 0, features: bool = True, opinions: bool = False) -> Profile:
    """Two domains that lie apart in the first feature; classes lie apart in the others."""
    draws = np.random.default_rng(seed)
    label, domain = np.arange(n) % 3, np.arange(n) // (n // 2)
    scores = (draws.normal(0, 1, (n, 3)) + 3 * np.eye(3)[label]).astype(np.float32)
    apart = draws.random(n).astype(np.float32) / 10 if opinions else None
    described = np.arange(n), statistics(draws, domain)
    own = places(draws, label, 6.0 * domain) if features else None
    return Profile(CLASSES, ("north", "south"), domain, label, scores, apart, *described, own)


def observed(n: int = 120, seed: int = 1, like: int = 0, unsure: float = 1.0) -> ModelOutputs:
    """Images of one of the two domains; `unsure` makes answers less certain."""
    draws = np.random.default_rng(seed)
    label = np.arange(n) % 3
    scores = (draws.normal(0, 1, (n, 3)) + 3 * np.eye(3)[label]) / unsure
    domain = np.full(n, like)
    described = statistics(draws, domain), places(draws, label, 6.0 * domain)
    return ModelOutputs(scores.astype(np.float32), None, *described)


def statistics(draws: np.random.Generator, domain: np.ndarray) -> np.ndarray:
    """The second domain is brighter; no file sizes are known."""
    values = draws.normal(0, 1, (len(domain), len(STATISTICS)))
    values[:, STATISTICS.index("brightness")] += 3 * domain
    values[:, STATISTICS.index("width")] = 32
    values[:, STATISTICS.index("bytes per pixel")] = np.nan
    return values.astype(np.float32)


def places(draws: np.random.Generator, label: np.ndarray, first: np.ndarray) -> np.ndarray:
    classes = 3 * np.eye(3)[label] + draws.normal(0, 0.5, (len(label), 3))
    own = first[:, None] + draws.normal(0, 0.5, (len(label), 1))
    return np.concatenate([own, classes], axis=1).astype(np.float32)
