"""BNM, the nuclear norm of a batch of predictions: sure and diverse answers.

Cui et al., Towards Discriminability and Diversity: Batch Nuclear-norm Maximization (CVPR 2020),
equation 8. No torch.
"""

import numpy as np

from unseen.records.arrays import Array


def nuclear_norm(chances: Array) -> float:
    """Sum of the singular values of predictions `[images, classes]`, divided by the most it can be:
    1 where all answers are certain and all classes as frequent."""
    images, classes = chances.shape
    singular = np.linalg.svd(chances, compute_uv=False)
    return float(singular.sum() / np.sqrt(images * min(images, classes)))
