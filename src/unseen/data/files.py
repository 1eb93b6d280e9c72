"""The shared part of all datasets whose images are files."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image

from unseen.data.dataset import Dataset
from unseen.data.images import open_image
from unseen.data.index import Index
from unseen.errors import DataError


class FileDataset(Dataset):
    """A dataset of image files; a subclass finds them."""

    @abstractmethod
    def find(self) -> tuple[Index, Path, Sequence[str]]:
        """The index, a base folder, and each image's path relative to it (or absolute)."""

    @cached_property
    def _found(self) -> tuple[Index, Path, Sequence[str]]:
        return self.find()

    def index(self) -> Index:
        return self._found[0]

    def path(self, position: int) -> Path:
        """Where an image lies."""
        _, base, files = self._found
        return base / files[position]

    def read(self, position: int) -> Image.Image:
        return open_image(self.content(position), self.index().names[position])

    def signature(self, position: int) -> str:
        try:
            state = self.path(position).stat()
        except OSError as error:
            raise self._unreadable(position, error) from error
        return f"{state.st_size} {state.st_mtime_ns}"

    def content(self, position: int) -> bytes:
        try:
            return self.path(position).read_bytes()
        except OSError as error:
            raise self._unreadable(position, error) from error

    def _unreadable(self, position: int, error: OSError) -> DataError:
        return DataError(f"{self.index().names[position]} cannot be read: {error.strerror}")


def existing_folder(root: Path | None, layout: str) -> Path:
    """`root`, if it is a folder; otherwise an error with the layout that was expected."""
    if root is None or not root.is_dir():
        found = "is a file" if root is not None and root.is_file() else "does not exist"
        raise DataError(f"the folder {root} {found}; expected {layout}")
    return root


def first_few(items: Sequence[str], limit: int = 5) -> str:
    """`a, b, c, ... (12 in all)`."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown}, ... ({len(items)} in all)"
