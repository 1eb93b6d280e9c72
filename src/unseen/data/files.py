"""What datasets of image files share: reading them, looking into folders, names of classes."""

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image

from unseen.data.dataset import Dataset, Index
from unseen.data.images import is_image_name, open_image
from unseen.errors import DataError, nearest


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
        return open_image(self.content(position), self.index().names[position])

    def signature(self, position: int) -> str:
        return file_state(self.path(position))

    def content(self, position: int) -> bytes:
        return read_bytes(self.path(position), self.index().names[position])


class OwnImages(FileDataset):
    """A user's own images, whose classes may get other names."""

    class Config(Dataset.Config):
        classes: dict[str, str | None] | None = None
        """New class names, `{source: class}`. Several sources may become one class, an empty name
        leaves a class out, and names that are not mentioned stay as they are."""

    config: Config

    def new_names(self, sources: Iterable[str], where: Path) -> dict[str, str]:
        """Return the class of each source, without those left out; no label stays no label."""
        known = sorted(set(sources) - {""})
        mapping = self.config.classes or {}
        unknown = [f"'{name}'{nearest(name, known)}" for name in mapping if name not in known]
        if unknown:
            raise DataError(
                f"data.classes maps names that are not in {where}: {', '.join(unknown)} "
                f"(found: {', '.join(known)})"
            )
        wanted = {source: mapping.get(source, source) for source in known}
        return {"": ""} | {source: name for source, name in wanted.items() if name}


def file_state(file: Path) -> str:
    """Return a text that changes when a file may have changed: its size and its time."""
    try:
        state = file.stat()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    return f"{state.st_size} {state.st_mtime_ns}"


def read_bytes(file: Path, name: str) -> bytes:
    """Return what an image's file holds. Raises DataError naming the image."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{name} cannot be read from {file}: {error.strerror}") from error


def existing_folder(root: Path | None, layout: str) -> Path:
    """Return `root`, if it is a folder. Raises DataError with the layout that was expected."""
    if root is None or not root.is_dir():
        problem = "is a file" if root is not None and root.is_file() else "does not exist"
        raise DataError(f"the folder {root} {problem}; expected {layout}")
    return root


def folders_in(parent: Path) -> list[str]:
    """List the names of the visible folders in a folder."""
    entries = os.scandir(parent)
    return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def images_in(folder: Path) -> list[str]:
    """List the names of the images that lie directly in a folder."""
    return sorted(file for file in os.listdir(folder) if is_image_name(file))  # noqa: PTH208, twice as fast


def first_few(items: Sequence[str], limit: int = 5) -> str:
    """Write `a, b, c, ... (12 in all)`."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown}, ... ({len(items)} in all)"


def missing_classes(index: Index) -> list[str]:
    """Return a remark for each domain that does not show every class, or has no labels at all."""
    counts = index.count_classes()
    absent = {
        domain: [name for name, count in counts[domain].items() if not count]
        for domain in index.labelled_domains
    }
    remarks = [f"{domain} has no images of: {first_few(a)}" for domain, a in absent.items() if a]
    return remarks + [
        f"{domain} has no labels: it can be the target of setting=adaptation, and nothing is "
        "measured on it"
        for domain in index.domains
        if domain not in absent
    ]
