"""HDF5 files as the original project used them: `<domain>_<split>.hdf5` with images and labels."""

import threading
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.data.dataset import (
    ArrayDataset,
    Dataset,
    Index,
    LabelledImage,
    Split,
    place_in_parts,
)
from unseen.data.images import existing_folder, file_state
from unseen.errors import DataError, first_few
from unseen.optional import require

SPLITS = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.TEST}
LAYOUT = (
    "a folder with files '<domain>_{train,val,test}.hdf5', each with the arrays "
    "'images' [N, height, width, 3] of uint8 and 'labels' [N]"
)


class HDF5File(NamedTuple):
    """The images of one domain and split, and their labels."""

    domain: str
    split: Split
    path: Path
    labels: np.ndarray


class HDF5(ArrayDataset):
    """Labels are read from their own arrays; images are read one by one, in `prepare` only."""

    class Config(Dataset.Config):
        bgr: bool = False
        """The arrays hold blue, green, red (as OpenCV reads; the original PACS files do)."""
        first_label: int = 0
        """The smallest label in the files (1 in the original PACS files)."""
        class_names: tuple[str, ...] | None = None
        """Names in the order of the labels; without them, classes are called by their label."""
        test_is_whole_domain: bool = False
        """Test files repeat the training images, so they count only for an unseen domain (PACS)."""

    config: Config

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self._h5py = require("h5py", "hdf5")
        self._lock = threading.Lock()
        self._opened: dict[Path, Any] = {}

    def build_index(self) -> Index:
        files = self._files
        classes, first = self._classes(files), self.config.first_label
        images = [
            LabelledImage(f"{file.path.stem}/{row:06d}", classes[label - first], file.domain)
            for file in files
            for row, label in enumerate(file.labels)
        ]
        # a domain without a val file gives a share of its train images, by name
        drawn = self.draw_splits((image.name for image in images), [Split.TEST])
        splits = np.repeat([file.split for file in files], [len(file.labels) for file in files])
        validated = {file.domain for file in files if file.split == Split.VALIDATION}
        alone = np.array([image.domain not in validated for image in images])
        splits = np.where(alone & (splits == Split.TRAIN), drawn, splits)
        official = any(file.split == Split.TEST for file in files)
        return Index.of(images, splits, classes, official_test=official)

    def signature(self, position: int) -> str:
        number, _ = place_in_parts(self._ends, position)
        return f"{self._states[number]} bgr={self.config.bgr}"

    def pixels(self, position: int) -> np.ndarray:
        number, row = place_in_parts(self._ends, position)
        path = self._files[number].path
        try:
            with self._lock:
                if path not in self._opened:
                    self._opened[path] = self._h5py.File(path, "r")
                pixels = self._opened[path]["images"][row]
        except OSError as error:
            name = self.index().names[position]
            raise DataError(f"{name} cannot be read from {path}: {error}") from error
        return pixels[..., ::-1] if self.config.bgr else pixels

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([len(file.labels) for file in self._files])

    @cached_property
    def _states(self) -> list[str]:
        return [file_state(file.path) for file in self._files]

    @cached_property
    def _files(self) -> list[HDF5File]:
        root = existing_folder(self.root, LAYOUT)
        files: list[HDF5File] = []
        for path in sorted(root.iterdir()):
            domain, _, part = path.stem.rpartition("_")
            if path.suffix.lower() in (".hdf5", ".h5") and domain and part in SPLITS:
                split = SPLITS[part]
                if split == Split.TEST and self.config.test_is_whole_domain:
                    split = Split.UNSEEN
                files.append(HDF5File(domain, split, path, self._labels(path)))
        if not files:
            raise DataError(f"no HDF5 files of that form in {root}; expected {LAYOUT}")
        return files

    def _labels(self, file: Path) -> np.ndarray:
        """Read the labels of a file, after a look at the shape and kind of its images."""
        try:
            with self._h5py.File(file, "r") as opened:
                images, labels = opened["images"], np.asarray(opened["labels"][()]).ravel()
                shape, kind = images.shape, images.dtype
        except (OSError, KeyError) as error:
            raise DataError(f"{file} cannot be used ({error}); expected {LAYOUT}") from error
        if len(shape) != 4 or shape[3] != 3 or kind != np.uint8:
            raise DataError(f"{file}: 'images' is {kind} {list(shape)}; expected {LAYOUT}")
        if len(labels) != shape[0]:
            raise DataError(f"{file}: {len(labels)} labels for {shape[0]} images")
        if len(labels) == 0:
            raise DataError(f"{file} holds no images; fill or remove it")
        return labels.astype(np.int64)

    def _classes(self, files: list[HDF5File]) -> tuple[str, ...]:
        first, names = self.config.first_label, self.config.class_names
        present = sorted({int(label) for file in files for label in np.unique(file.labels)})
        last = first + len(names) - 1 if names else present[-1]
        strange = [str(label) for label in present if not first <= label <= last]
        if strange:
            raise DataError(
                f"labels outside {first}..{last}: {first_few(strange)}; "
                f"set data.first_label (now {first}) or data.class_names"
            )
        return names or tuple(str(label) for label in range(first, last + 1))
