"""What a dataset knows about its images without opening one: names, classes, domains, splits."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Split(IntEnum):
    TRAIN = 0
    VALIDATION = 1  # held out of training, used to choose a checkpoint
    TEST = 2  # held out of training, used for the in-domain result
    UNSEEN = 3  # only used when its domain is the unseen one (lists that repeat training images)


@dataclass(frozen=True)
class Index:
    """One row per image; the row number is the image's position everywhere else."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    names: tuple[str, ...]
    """Identity of each image, unique, independent of where the dataset lies."""
    labels: np.ndarray
    """int64, positions in `classes`."""
    domain_of: np.ndarray
    """int64, positions in `domains`."""
    splits: np.ndarray
    """uint8, values of `Split`."""
    official_test: bool = False
    """The TEST rows are a published list: an unseen domain is measured on them alone."""
    remarks: tuple[str, ...] = ()
    """Oddities worth a line in the integrity report."""

    def __len__(self) -> int:
        return len(self.names)

    def keep(self, rows: np.ndarray) -> "Index":
        """The same index with these rows only (a boolean mask)."""
        return Index(
            self.classes,
            self.domains,
            tuple(name for name, wanted in zip(self.names, rows, strict=True) if wanted),
            self.labels[rows],
            self.domain_of[rows],
            self.splits[rows],
            self.official_test,
            self.remarks,
        )
