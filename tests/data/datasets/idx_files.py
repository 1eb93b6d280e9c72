"""MNIST's file format, as it is published."""

import numpy as np


def idx(values: np.ndarray) -> bytes:
    """0, 0, kind, number of axes; lengths; values."""
    lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes()
