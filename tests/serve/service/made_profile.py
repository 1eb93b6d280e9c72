"""A profile of validation images with random but plausible numbers."""

from collections.abc import Sequence

import numpy as np

from unseen.forecast.profile import STATISTICS, Profile


def made_profile(classes: Sequence[str], domains: Sequence[str], images: int) -> Profile:
    """Every image is described; statistics of a domain lie around its number."""
    random = np.random.default_rng(0)
    domain = np.arange(images) % len(domains)
    label = np.arange(images) // len(domains) % len(classes)
    scores = random.normal(size=(images, len(classes)))
    scores[np.arange(images), label] += 3
    statistics = domain[:, None] + random.normal(0, 0.1, (images, len(STATISTICS)))
    return Profile(
        tuple(classes),
        tuple(domains),
        domain,
        label,
        scores.astype(np.float32),
        random.uniform(0, 0.2, images).astype(np.float32),
        np.arange(images),
        statistics.astype(np.float32),
        None,
    )
