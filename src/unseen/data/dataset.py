"""What a dataset is: an index of its images, a way to read each of them, and where it lies."""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, digest, read_if_whole, write_arrays
from unseen.data.images import (
    PACKAGES,
    Window,
    file_state,
    is_hidden,
    is_installed,
    open_image,
    read_bytes,
)
from unseen.data.index import UNLABELLED, Index, LabelledImage, Split, held_out
from unseen.errors import DataError
from unseen.settings import catalog
from unseen.settings.experiment import DataSettings

_MAKES_NO_DIFFERENCE = {"unseen_domain", "training_domains", "share", "train_on_unseen"}
MOST_WATCHED = 50_000
"""Folders and lists beyond which an index is made anew every time."""
JUST_NOW = 2 * 10**9
"""Nanoseconds in which a folder may change once more without another time."""


class Dataset(ABC):
    """One file per dataset. Indexing never opens an image; reading happens once, in `prepare`."""

    Config = DataSettings
    needs_root: ClassVar[bool] = True
    name_as_root: ClassVar[bool] = False
    """The root may be a name that is no path on this machine."""
    window: Window | None = None
    """The values that become black and white in images of more than 8 bits; None: by their type."""
    unchanged_since: str | None = None
    """The last look at all folders of the dataset, where none has changed since then; with None,
    every image has to be looked at to know whether it has changed."""

    def __init__(self, config: DataSettings, root: Path | None) -> None:
        self.config = config
        self.root = root

    def index(self) -> Index:
        """Return all images with labels, domains and splits; made when first asked for."""
        return self._index

    @cached_property
    def _index(self) -> Index:
        return self.new_index()

    def new_index(self) -> Index:
        """Make the index anew."""
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
        validation = 0 if Split.VALIDATION in published else config.validation_share
        test = 0 if Split.TEST in published else config.test_share
        return held_out(names, validation, test, config.split_seed)

    def index_of(
        self,
        images: Sequence[LabelledImage],
        classes: Iterable[str] | None = None,
        domains: Iterable[str] | None = None,
        remarks: Iterable[str] = (),
        published: Collection[Split] | None = None,
        drawn_by: Sequence[str] = (),
    ) -> Index:
        """Index listed images; classes and domains are sorted by name, unless given. Where no split
        is given, it is drawn by name (or by `drawn_by`), among the kinds that are not published:
        those that nothing is given of."""
        names, found, places, given = zip(*images, strict=True) if images else ((),) * 4
        published = {split for split in given if split} if published is None else published
        splits = self.draw_splits(drawn_by or names, published)
        listed = [split is not None for split in given]
        splits[listed] = [split for split in given if split is not None]
        classes = tuple(classes or sorted({*found} - {""}))
        domains = tuple(domains or sorted({*places}))
        label_of = {"": UNLABELLED} | {name: label for label, name in enumerate(classes)}
        number_of = {name: number for number, name in enumerate(domains)}
        labels = np.array([label_of[name] for name in found], dtype=np.int64)
        domain_of = np.array([number_of[name] for name in places], dtype=np.int64)
        official = Split.TEST in published and Split.TEST in given
        return Index(classes, domains, names, labels, domain_of, splits, official, tuple(remarks))

    @abstractmethod
    def build_index(self) -> Index:
        """Index the images in a fixed order. Raises DataError saying what is missing or wrong."""

    def read(self, position: int) -> Image.Image:
        """Return one image as RGB, 8 bits, upright. Raises DataError naming the image."""
        return self.decode(self.content(position), position)

    def decode(self, content: bytes, position: int, side: int | None = None) -> Image.Image:
        """Return the image that these bytes are. Where no more than `side` pixels are needed, a
        much larger one may come smaller."""
        return open_image(content, self.index().names[position], window=self.window, side=side)

    @abstractmethod
    def signature(self, position: int) -> str:
        """Return a text that changes when the image may have changed; cheap, such as the size and
        time of a file."""

    @abstractmethod
    def content(self, position: int) -> bytes:
        """Return the bytes that decide what an image looks like: those of its file, say."""


class FileDataset(Dataset):
    """A dataset of image files; a subclass finds them. Its index is kept in the cache, and used
    again until a folder or a list of the dataset, or what it is made with, changes."""

    @abstractmethod
    def find(self) -> tuple[Index, Path]:
        """Return the index, and the folder that the images' names are relative to."""

    @cached_property
    def _index(self) -> Index:
        file = self._kept_in()
        with suppress(OSError, ValueError, KeyError, TypeError):  # no such file, or a damaged one
            if file and (index := self._read_index(file)):
                return index
        looked_at = time.time_ns()
        index = self.new_index()
        watched = _watch(self.root, self._folder, set(index.names)) if file and self.root else {}
        if file and watched and len(index):
            with suppress(OSError):  # without room for it, it is made anew the next time
                self._write_index(file, index, watched, looked_at)
                self.unchanged_since = str(looked_at)
        return index

    def _kept_in(self) -> Path | None:
        """Return the file of the index, named after all that it depends on but for the files; None
        where that is not known."""
        modules = [sys.modules.get(each.__module__) for each in type(self).__mro__]
        code = [file for module in modules if (file := getattr(module, "__file__", None))]
        if type(self).__module__ == "__main__" or not getattr(modules[0], "__file__", None):
            return None
        config = self.config.model_dump_json(exclude=_MAKES_NO_DIFFERENCE | {"bad_images", "cache"})
        texts = [text for text in dict(self.config).values() if isinstance(text, str)]
        lists = [file for text in texts if (file := Path(text).expanduser()).is_file()]
        states = [f"{file} {_state(file)}" for file in [*dict.fromkeys(code), *lists]]
        readers = str([*map(is_installed, PACKAGES)])
        key = digest([type(self).__qualname__, str(self.root), config, readers, *states])
        return cache_folder() / "indexes" / f"{key[:32]}.npz"

    def _read_index(self, file: Path) -> Index | None:
        """Return the kept index; None where a folder or a list has changed since then."""
        with np.load(file, allow_pickle=False) as arrays:
            about: dict[str, Any] = json.loads(arrays["about"].tobytes())
            for path, state in about["watched"].items():
                if state != _state(path) or state[0] > about["looked_at"] - JUST_NOW:
                    return None
            values: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
            for name in _TEXTS:
                text = arrays[name].tobytes().decode(errors="surrogateescape")
                values[name] = tuple(text.split("\0")) if text else ()
        for name, value in about["index"].items():
            values[name] = tuple(about["index"][name]) if isinstance(value, list) else value
        self._folder, self.unchanged_since = Path(about["folder"]), str(about["looked_at"])
        return Index(**values)

    def _write_index(
        self, file: Path, index: Index, watched: dict[str, list[int]], looked_at: int
    ) -> None:
        """Keep an index, and what was looked at when it was made."""
        values = dict(vars(index))
        arrays = {name: values.pop(name) for name in _ARRAYS}
        texts = {name: "\0".join(values.pop(name)) for name in _TEXTS}
        about = {"watched": watched, "looked_at": looked_at, "folder": os.fspath(self._folder)}
        texts["about"] = json.dumps(about | {"index": values})
        for name, text in texts.items():
            arrays[name] = np.frombuffer(text.encode(errors="surrogateescape"), dtype=np.uint8)
        write_arrays(file, arrays)

    def build_index(self) -> Index:
        index, self._folder = self.find()
        return index

    def path(self, position: int) -> Path:
        """Return where an image lies."""
        return Path(self._place(position))

    def _place(self, position: int) -> str:
        name = self.index().names[position]  # first: it finds the folder
        return os.path.join(self._folder, name)  # noqa: PTH118, half of the time

    def signature(self, position: int) -> str:
        return file_state(self._place(position))

    def content(self, position: int) -> bytes:
        return read_bytes(self._place(position), self.index().names[position])


_ARRAYS, _TEXTS = ("labels", "domain_of", "splits"), ("names", "groups")


def _state(path: Path | str) -> list[int]:
    """Return the time and the size of a file or folder."""
    try:
        state = os.stat(path)  # noqa: PTH116
    except OSError:
        return [-1, -1]
    return [state.st_mtime_ns, state.st_size]


def _watch(root: Path, folder: Path, images: set[str]) -> dict[str, list[int]]:
    """Look at the folders of a dataset, and at all files in it that are none of its images; return
    nothing where that cannot tell whether an image was added or removed."""
    base = os.fspath(folder)
    paths = {os.path.dirname(os.path.join(base, name)) for name in images}  # noqa: PTH118, PTH120
    paths.add(os.fspath(root))
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not is_hidden(name)]
        if any(os.path.islink(os.path.join(place, name)) for name in folders):  # noqa: PTH114, PTH118
            return {}
        start = (os.path.relpath(place, base) + os.sep).removeprefix(f".{os.sep}")
        others = (n for n in files if (start + n).replace(os.sep, "/") not in images)
        paths.update([place, *(os.path.join(place, name) for name in others)])  # noqa: PTH118
        if len(paths) > MOST_WATCHED:
            return {}
    return {path: _state(path) for path in sorted(paths)}


class Part(NamedTuple):
    """A file with many images of one domain."""

    name: str
    """The name of each image is this, a slash and its row."""
    domain: str
    split: Split | None
    classes: Sequence[str]
    """The class of each image."""
    state: str
    """Changes when an image may have changed."""
    read: Callable[[int], Any]
    """Returns the image in a row, uint8 [height, width, 3] or [height, width] in shades of gray."""


class PartsDataset(Dataset):
    """A dataset of few files with many images each; a subclass opens them."""

    row_digits: ClassVar[int] = 6

    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """Return the files in a fixed order; asked once."""

    @cached_property
    def all_parts(self) -> Sequence[Part]:
        return self.parts()

    @cached_property
    def listed(self) -> list[LabelledImage]:
        """All images, part by part."""
        return [
            LabelledImage(f"{part.name}/{row:0{self.row_digits}d}", name, part.domain, part.split)
            for part in self.all_parts
            for row, name in enumerate(part.classes)
        ]

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(part.classes) for part in self.all_parts])

    def pixels(self, position: int) -> np.ndarray:
        """Return an image as its part holds it."""
        number, row = place_in_parts(self._ends, position)
        return self.all_parts[number].read(row)

    def decode(self, content: bytes, position: int, side: int | None = None) -> Image.Image:
        header, _, data = content.partition(b") ")
        shape = [int(length) for length in header[1:].split(b",")]
        return Image.fromarray(np.frombuffer(data, np.uint8).reshape(shape)).convert("RGB")

    def signature(self, position: int) -> str:
        return self.all_parts[place_in_parts(self._ends, position)[0]].state

    def content(self, position: int) -> bytes:
        pixels = self.pixels(position)
        return f"{pixels.shape} ".encode() + pixels.tobytes()


def place_in_parts(ends: np.ndarray, position: int) -> tuple[int, int]:
    """Return which of the parts that end before these positions holds an image, and its row."""
    part = int(np.searchsorted(ends, position, side="right"))
    return part, position - int(ends[part - 1] if part else 0)


FOLDERS = {
    "mnist": "MNIST",
    "mnist_m": ".",
    "rotated_mnist": "MNIST",
    "colored_mnist": "MNIST",
    "digits_5": ".",
    "pacs": "PACS",
    "domainnet": "DomainNet",
    "vlcs": "VLCS",
    "office_home": "OfficeHome",
    "terra_incognita": "TerraIncognita",
    "office_31": "Office31",
    "camelyon17": "camelyon17_v1.0",
    "iwildcam": "iwildcam_v2.0",
    "fmow": "fmow_v1.1",
}
"""Where below $UNSEEN_DATA a dataset is looked for when no root is given."""


def open_dataset(settings: DataSettings) -> Dataset:
    """Open the dataset of these settings, at the root they name or at the one that is known."""
    kind: type[Dataset] = catalog.load("dataset", settings.name)
    if type(settings) is not kind.Config:
        settings = kind.Config(**settings.model_dump())
    return kind(settings, _root(kind, settings) if kind.needs_root else None)


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
    shared, folder = os.environ.get("UNSEEN_DATA"), FOLDERS.get(settings.name)
    if shared and folder and (Path(shared) / folder).is_dir():
        return Path(shared) / folder
    gone = f" (it was in {remembered}, which no longer exists)" if remembered else ""
    raise DataError(
        f"where is the dataset '{settings.name}'?{gone} Run `unseen prepare {settings.name} "
        f"--root DIR` once, or set data.root=DIR"
    )
