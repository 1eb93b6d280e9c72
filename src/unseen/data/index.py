"""The index of a dataset: what is known about its images before one is opened."""

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import compress
from typing import NamedTuple

import numpy as np

from unseen.errors import first_few


class Split(IntEnum):
    TRAIN = 0
    VALIDATION = 1  # held out of training, used to choose a checkpoint
    TEST = 2  # held out of training, used for the in-domain result
    UNSEEN = 3  # only used when its domain is the unseen one (lists that repeat training images)


SPLITS = {
    "train": Split.TRAIN,
    **dict.fromkeys(("val", "valid", "validation", "dev", "crossval"), Split.VALIDATION),
    "test": Split.TEST,
}
"""What files, folders and lists call them."""
UNLABELLED = -1
"""The label of an image whose class nobody has said."""


class LabelledImage(NamedTuple):
    """An image as a folder or a list names it."""

    name: str
    class_name: str
    """Empty in a domain without labels."""
    domain: str
    split: Split | None = None
    """None where no list says it: it is then drawn by name."""


@dataclass(frozen=True)
class Index:
    """What is known about images without opening one. One row per image; the row number is the
    image's position everywhere else."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    names: tuple[str, ...]
    """Identity of each image, unique, independent of where the dataset lies."""
    labels: np.ndarray
    """int64, positions in `classes`; one past the last for images of `other_classes`; `UNLABELLED`
    for all images of a domain without labels."""
    domain_of: np.ndarray
    """int64, positions in `domains`."""
    splits: np.ndarray
    """uint8, values of `Split`."""
    official_test: bool = False
    """The TEST rows are a published list: an unseen domain is measured on them alone."""
    remarks: tuple[str, ...] = ()
    """Oddities worth a line when the dataset is prepared."""
    other_classes: tuple[str, ...] = ()
    """Classes that some images have and a model does not know."""
    groups: tuple[str, ...] = ()
    """What each image belongs to, such as a patient: those with the same text are kept together.
    Empty: every image stands for itself."""

    def __len__(self) -> int:
        return len(self.names)

    def without(self, names: Collection[str]) -> "Index":
        """Return the index of all other images."""
        if not names:
            return self
        rows = np.array([name not in names for name in self.names])
        return replace(
            self,
            names=tuple(name for name in self.names if name not in names),
            labels=self.labels[rows],
            domain_of=self.domain_of[rows],
            splits=self.splits[rows],
            groups=tuple(compress(self.groups, rows)),
        )

    def classes_in(self, domains: Collection[str]) -> tuple[str, ...]:
        """Return the classes that have an image in any of these domains."""
        numbers = [self.domains.index(domain) for domain in domains]
        there = set(self.labels[np.isin(self.domain_of, numbers)].tolist())
        return tuple(name for label, name in enumerate(self.classes) if label in there)

    def with_classes(self, classes: tuple[str, ...]) -> "Index":
        """Number the labels as these classes; whatever a model calls images of others is wrong."""
        if classes == self.classes:
            return self
        present = self.classes_in(self.domains)
        others = tuple(name for name in present if name not in classes) + self.other_classes
        labels = {name: label for label, name in enumerate(classes)}
        new = [labels.get(name, len(classes)) for name in self.classes]
        table = np.array([*new, len(classes), UNLABELLED], dtype=np.int64)
        return replace(self, classes=classes, labels=table[self.labels], other_classes=others)

    @property
    def labelled_domains(self) -> tuple[str, ...]:
        """The domains that can train a classifier and measure one."""
        without = set(self.domain_of[self.labels == UNLABELLED].tolist())
        return tuple(name for number, name in enumerate(self.domains) if number not in without)

    def missing_classes(self) -> list[str]:
        """Return a remark for each domain that does not show every class, or has no labels."""
        remarks: list[str] = []
        for domain, counts in self.count_classes().items():
            absent = [name for name, count in counts.items() if not count]
            if domain not in self.labelled_domains:
                remarks.append(
                    f"{domain} has no labels: it can be the target of setting=adaptation, and "
                    "nothing is measured on it"
                )
            elif absent:
                remarks.append(f"{domain} has no images of: {first_few(absent)}")
        return remarks

    def rows(self, domain: str, split: Split | None = None) -> np.ndarray:
        """Return the positions of a domain's images, or of those in one split."""
        chosen = self.domain_of == self.domains.index(domain)
        return np.flatnonzero(chosen if split is None else chosen & (self.splits == split))

    def count_classes(self) -> dict[str, dict[str, int]]:
        """Count images by domain and class; a domain without labels has none of any class."""
        return self._count(self.labels, self.classes)

    def count_splits(self) -> dict[str, dict[str, int]]:
        """Count images by domain and split: 'train', 'validation', 'test', 'unseen'."""
        return self._count(self.splits, [split.name.lower() for split in Split])

    def _count(self, values: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, int]]:
        counts = np.zeros((len(self.domains), len(names)), dtype=np.int64)
        known = (values >= 0) & (values < len(names))
        np.add.at(counts, (self.domain_of[known], values[known]), 1)
        return {
            domain: dict(zip(names, row, strict=True))
            for domain, row in zip(self.domains, counts.tolist(), strict=True)
        }


def held_out(
    names: Iterable[str], validation_share: float, test_share: float, seed: int
) -> np.ndarray:
    """Draw the `Split` of each image (uint8), where no official list says it, from its name.

    Every image is drawn by itself, so adding a file moves no other one, and the shares hold in
    expectation within every class and domain. Changing one share leaves the other's images alone.
    """
    draws = np.array([draw(name, seed) for name in names], dtype=np.float64)
    splits = np.full(len(draws), Split.TRAIN, dtype=np.uint8)
    splits[draws < validation_share] = Split.VALIDATION
    splits[draws >= 1 - test_share] = Split.TEST
    return splits


def draw(name: str, seed: int | str, purpose: str = "") -> float:
    """Return a number in [0, 1) for an image, on every machine the same, another one for each
    purpose. Accents count the same however the file system spells them."""
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    text = f"{seed}\0{purpose}{name}".encode(errors="surrogateescape")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) / 2**53
