"""SND, soft neighbourhood density: target images whose answers lie in dense groups.

Saito et al., Tune it the Right Way: Unsupervised Validation of Domain Adaptation via Soft
Neighborhood Density (ICCV 2021), equations 1 to 3. No torch.
"""

import numpy as np

from unseen.records.arrays import Array

TEMPERATURE = 0.05
"""τ of the paper."""


def neighbourhood_density(chances: Array) -> float:
    """The mean entropy of each image's similarities to the others, as a distribution: high where
    many others are as near. Similarity is the cosine between predictions `[images, classes]`."""
    directions = chances / np.linalg.norm(chances, axis=1, keepdims=True)
    likeness = directions @ directions.T / TEMPERATURE
    np.fill_diagonal(likeness, -np.inf)  # an image is no neighbour of its own
    likeness -= likeness.max(axis=1, keepdims=True)
    logs = likeness - np.log(np.exp(likeness).sum(axis=1, keepdims=True))
    np.fill_diagonal(logs, 0.0)
    shares = np.exp(logs)
    np.fill_diagonal(shares, 0.0)
    return float(-(shares * logs).sum(axis=1).mean())
