"""What a dataset is: an index of its images, a way to read each of them, and where it lies."""

import hashlib
import os
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from PIL import Image

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, read_if_whole
from unseen.data.images import Window, file_state, open_image, read_bytes
from unseen.errors import DataError, first_few
from unseen.settings import catalog
from unseen.settings.experiment import DataSettings


class Split(IntEnum):
    TRAIN = 0
    VALIDATION = 1  # held out of training, used to choose a checkpoint
    TEST = 2  # held out of training, used for the in-domain result
    UNSEEN = 3  # only used when its domain is the unseen one (lists that repeat training images)


UNLABELLED = -1
"""The label of an image whose class nobody has said."""


class LabelledImage(NamedTuple):
    """An image as a folder or a list names it."""

    name: str
    class_name: str
    """Empty in a domain without labels."""
    domain: str


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

    @staticmethod
    def of(
        images: Sequence[LabelledImage],
        splits: np.ndarray,
        classes: Iterable[str] | None = None,
        official_test: bool = False,
        remarks: Iterable[str] = (),
    ) -> "Index":
        """Index images in a fixed order; classes and domains are sorted by name, unless given."""
        classes = tuple(classes or sorted({image.class_name for image in images} - {""}))
        domains = tuple(sorted({image.domain for image in images}))
        labels = {"": UNLABELLED} | {name: label for label, name in enumerate(classes)}
        positions = {name: position for position, name in enumerate(domains)}
        return Index(
            classes,
            domains,
            tuple(image.name for image in images),
            np.array([labels[image.class_name] for image in images], dtype=np.int64),
            np.array([positions[image.domain] for image in images], dtype=np.int64),
            splits.astype(np.uint8),
            official_test,
            tuple(remarks),
        )

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
        counts = self.count_classes()
        remarks: list[str] = []
        for domain in self.labelled_domains:
            absent = [name for name, count in counts[domain].items() if not count]
            if absent:
                remarks.append(f"{domain} has no images of: {first_few(absent)}")
        return remarks + [
            f"{domain} has no labels: it can be the target of setting=adaptation, and nothing is "
            "measured on it"
            for domain in self.domains
            if domain not in self.labelled_domains
        ]

    def rows(self, domain: str, split: Split | None = None) -> np.ndarray:
        """Return the positions of a domain's images, or of those in one split."""
        chosen = self.domain_of == self.domains.index(domain)
        return np.flatnonzero(chosen if split is None else chosen & (self.splits == split))

    def grouped_with(self, domains: Collection[str]) -> np.ndarray:
        """Say of each image whether its group has images in one of these domains."""
        if not self.groups:
            return np.zeros(len(self), dtype=bool)
        _, group = np.unique(self.groups, return_inverse=True)
        there = np.isin(self.domain_of, [self.domains.index(domain) for domain in domains])
        return np.isin(group, group[there])

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


class Published(NamedTuple):
    """The size of a dataset as published, for whoever asks before the files are there."""

    domains: int
    classes: int
    images: int


class Dataset(ABC):
    """One file per dataset. Indexing never opens an image; reading happens once, in `prepare`."""

    class Config(DataSettings):
        pass

    needs_root: ClassVar[bool] = True
    folder_name: ClassVar[str | None] = None
    """Name below $UNSEEN_DATA where this dataset is looked for when no root is given."""
    name_as_root: ClassVar[bool] = False
    """The root may be a name that is no path on this machine."""
    published_size: ClassVar[Published | None] = None

    def __init__(self, config: DataSettings, root: Path | None) -> None:
        self.config = config
        self.root = root

    def index(self) -> Index:
        """Return all images with labels, domains and splits; built when first asked for."""
        return self._index

    @cached_property
    def _index(self) -> Index:
        index = self.build_index()
        if self.config.official_splits:
            return index
        drawn = self.draw_splits(index.groups or index.names)
        splits = np.where(index.splits == Split.UNSEEN, index.splits, drawn)
        return replace(index, splits=splits, official_test=False)

    def draw_splits(
        self, names: Iterable[str], published: Collection[Split | None] = ()
    ) -> np.ndarray:
        """Draw the split of each image by its name, or by that of its group; kinds that are
        published are not drawn."""
        config = self.config
        return held_out(
            names,
            0 if Split.VALIDATION in published else config.validation_share,
            0 if Split.TEST in published else config.test_share,
            config.split_seed,
        )

    @abstractmethod
    def build_index(self) -> Index:
        """Index the images in a fixed order. Raises DataError saying what is missing or wrong."""

    @abstractmethod
    def read(self, position: int) -> Image.Image:
        """Return one image as RGB, 8 bits, upright. Raises DataError naming the image."""

    @abstractmethod
    def signature(self, position: int) -> str:
        """Return a text that changes when the image may have changed; cheap, such as the size and
        time of a file."""

    @abstractmethod
    def content(self, position: int) -> bytes:
        """Return the bytes that decide what `read` gives, to be hashed."""

    window: Window | None = None
    """The values that become black and white in images of more than 8 bits; None: by their type."""


class ArrayDataset(Dataset):
    """A dataset whose images are arrays already; a subclass gives the pixels."""

    @abstractmethod
    def pixels(self, position: int) -> np.ndarray:
        """Return uint8 [height, width, 3], or [height, width] in shades of gray."""

    def read(self, position: int) -> Image.Image:
        return Image.fromarray(np.ascontiguousarray(self.pixels(position))).convert("RGB")

    def content(self, position: int) -> bytes:
        pixels = self.pixels(position)
        return f"{pixels.shape} ".encode() + pixels.tobytes()


class FileDataset(Dataset):
    """A dataset of image files; a subclass finds them."""

    @abstractmethod
    def find(self) -> tuple[Index, Path]:
        """Return the index, and the folder that the images' names are relative to."""

    @cached_property
    def _index_and_folder(self) -> tuple[Index, Path]:
        return self.find()

    def build_index(self) -> Index:
        return self._index_and_folder[0]

    def path(self, position: int) -> Path:
        """Return where an image lies."""
        return self._index_and_folder[1] / self.index().names[position]

    def read(self, position: int) -> Image.Image:
        name = self.index().names[position]
        return open_image(self.content(position), name, window=self.window)

    def signature(self, position: int) -> str:
        index, folder = self._index_and_folder
        return file_state(os.path.join(folder, index.names[position]))  # noqa: PTH118, half of the time

    def content(self, position: int) -> bytes:
        return read_bytes(self.path(position), self.index().names[position])


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


def place_in_parts(ends: np.ndarray, position: int) -> tuple[int, int]:
    """Return which of the parts that end before these positions holds an image, and its row."""
    part = int(np.searchsorted(ends, position, side="right"))
    return part, position - int(ends[part - 1] if part else 0)


def open_dataset(settings: DataSettings) -> Dataset:
    """Open the dataset of these settings, at the root they name or at the one that is known."""
    kind: type[Dataset] = catalog.load("dataset", settings.name)
    if not isinstance(settings, kind.Config):
        settings = kind.Config(**settings.model_dump())
    return kind(settings, _root(kind, settings) if kind.needs_root else None)


_MAKES_NO_DIFFERENCE = {"unseen_domain", "training_domains", "share", "train_on_unseen"}


class OpenDatasets:
    """Datasets by their settings, each opened once, so that each is indexed once.

    Which domains and what share of them train, and which are unseen, makes no difference to a
    dataset: all runs of a comparison share one.
    """

    def __init__(self) -> None:
        self._opened: dict[str, Dataset] = {}

    def open(self, settings: DataSettings) -> Dataset:
        key = settings.model_dump_json(exclude=_MAKES_NO_DIFFERENCE)
        if key not in self._opened:
            self._opened[key] = open_dataset(settings)
        return self._opened[key]


def remember_root(name: str, root: Path) -> None:
    """Note where a dataset lies, so that later runs find it without being told."""
    file = cache_folder() / "roots.json"
    path = root.expanduser()
    place = str(path.resolve() if path.exists() else root)
    write_json(file, read_if_whole(file) | {name: place})


def _root(kind: type[Dataset], settings: DataSettings) -> Path:
    if settings.root is not None:
        return Path(settings.root).expanduser()
    remembered = read_if_whole(cache_folder() / "roots.json").get(settings.name)
    if remembered and (kind.name_as_root or Path(remembered).exists()):
        return Path(remembered)
    shared = os.environ.get("UNSEEN_DATA")
    if shared and kind.folder_name and (Path(shared) / kind.folder_name).is_dir():
        return Path(shared) / kind.folder_name
    gone = f" (it was in {remembered}, which no longer exists)" if remembered else ""
    raise DataError(
        f"where is the dataset '{settings.name}'?{gone} Run `unseen prepare {settings.name} "
        f"--root DIR` once, or set data.root=DIR"
    )
