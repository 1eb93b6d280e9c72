"""What is in a prepared dataset, for a look before training."""

from dataclasses import dataclass

import numpy as np

from unseen.data.index import Split
from unseen.data.prepare import PreparedImages


@dataclass(frozen=True)
class Integrity:
    """Counts by name, and everything that was odd."""

    counts: dict[str, dict[str, int]]
    """Domain -> class -> images."""
    splits: dict[str, dict[str, int]]
    """Domain -> 'train', 'validation', 'test', 'unseen' -> images."""
    remarks: tuple[str, ...]
    left_out: tuple[str, ...]
    """Unreadable images, by name."""


def integrity_report(prepared: PreparedImages) -> Integrity:
    """Counts per domain and class, and per domain and split, of the images that can be used."""
    index = prepared.index
    per_class = np.zeros((len(index.domains), len(index.classes)), dtype=np.int64)
    np.add.at(per_class, (index.domain_of, index.labels), 1)
    per_split = np.zeros((len(index.domains), len(Split)), dtype=np.int64)
    np.add.at(per_split, (index.domain_of, index.splits), 1)
    return Integrity(
        _by_name(index.domains, index.classes, per_class),
        _by_name(index.domains, tuple(split.name.lower() for split in Split), per_split),
        index.remarks,
        prepared.left_out,
    )


def _by_name(
    rows: tuple[str, ...], columns: tuple[str, ...], counts: np.ndarray
) -> dict[str, dict[str, int]]:
    return {
        row: dict(zip(columns, values, strict=True))
        for row, values in zip(rows, counts.tolist(), strict=True)
    }
