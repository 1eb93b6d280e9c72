"""The contract of a dataset: settings, an index, and a way to read one image."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from PIL import Image

from unseen.config import DataSettings
from unseen.data.index import Index


class Dataset(ABC):
    """One file per dataset. Indexing never opens an image; reading happens once, in `prepare`."""

    class Config(DataSettings):
        pass

    needs_root: ClassVar[bool] = True
    folder_name: ClassVar[str | None] = None
    """Name below $UNSEEN_DATA where this dataset is looked for when no root is given."""

    def __init__(self, config: DataSettings, root: Path | None) -> None:
        self.config = config
        self.root = root

    @abstractmethod
    def index(self) -> Index:
        """All images with labels, domains and splits, in a fixed order. Raises DataError."""

    @abstractmethod
    def read(self, position: int) -> Image.Image:
        """One image as RGB, 8 bits, upright. Raises DataError naming the image."""

    @abstractmethod
    def signature(self, position: int) -> str:
        """Changes when the image may have changed; cheap (size and time of a file)."""

    @abstractmethod
    def content(self, position: int) -> bytes:
        """The bytes that decide what `read` gives, to be hashed."""
