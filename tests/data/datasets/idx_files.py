"""MNIST's file format, as it is published."""

import gzip
from pathlib import Path

import numpy as np


def idx(values: np.ndarray) -> bytes:
    """0, 0, kind, number of axes; lengths; values."""
    lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes()


def write_mnist(
    folder: Path, pixels: np.ndarray, labels: np.ndarray, n_train: int, zipped: bool = False
) -> Path:
    """Write the four files; digits from `n_train` on test."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, n_train)), ("t10k", slice(n_train, None))):
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            data = idx(values[rows].astype(np.uint8))
            name = f"{part}-{kind}-ubyte{'.gz' * zipped}"
            (folder / name).write_bytes(gzip.compress(data) if zipped else data)
    return folder
