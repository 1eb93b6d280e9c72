"""Features of any width as at most 64 numbers that keep their distances."""

import hashlib
from functools import lru_cache

import numpy as np

DIMENSIONS = 64


def project(features: np.ndarray) -> np.ndarray:
    """float32 `[images, at most 64]`: sums with random signs (Achlioptas 2003), the same ones on
    every machine, so that the features of other images can be compared later."""
    width = features.shape[1]
    if width <= DIMENSIONS:
        return features.astype(np.float32)
    return (features.astype(np.float64) @ _signs(width)).astype(np.float32)


@lru_cache(maxsize=4)
def _signs(width: int) -> np.ndarray:
    data = hashlib.shake_256(f"signs of {width}".encode()).digest(width * DIMENSIONS // 8)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8)).reshape(width, DIMENSIONS)
    return (2.0 * bits - 1.0) / np.sqrt(DIMENSIONS)
