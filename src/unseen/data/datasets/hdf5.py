"""HDF5 files as the original project used them: `<domain>_<split>.hdf5` with images and labels."""

import threading
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.data.dataset import ArrayDataset, Dataset, Index, LabelledImage, Split, held_out
from unseen.data.files import existing_folder, first_few
from unseen.errors import DataError
from unseen.optional import require

PARTS = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.TEST}
SUFFIXES = (".hdf5", ".h5")
LAYOUT = (
    "a folder with files '<domain>_{train,val,test}.hdf5', each with the arrays "
    "'images' [N, height, width, 3] of uint8 and 'labels' [N]"
)


class Part(NamedTuple):
    domain: str
    split: Split
    file: Path
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

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self.options = config
        self._h5py = require("h5py", "hdf5")
        self._lock = threading.Lock()
        self._open_files: dict[Path, Any] = {}

    def build_index(self) -> Index:
        parts = self._parts
        classes = self._classes(parts)
        images = [
            LabelledImage(f"{part.file.stem}/{row:06d}", classes[label], part.domain)
            for part in parts
            for row, label in enumerate(part.labels - self.options.first_label)
        ]
        official = any(part.split == Split.TEST for part in parts)
        return Index.of(images, self._splits(parts, images), classes, official_test=official)

    @cached_property
    def _rows(self) -> list[tuple[Path, int, str]]:
        """For each image its file, row and the file's state."""
        rows: list[tuple[Path, int, str]] = []
        for part in self._parts:
            state = part.file.stat()
            signature = f"{state.st_size} {state.st_mtime_ns} bgr={self.options.bgr}"
            rows += [(part.file, row, signature) for row in range(len(part.labels))]
        return rows

    def signature(self, position: int) -> str:
        return self._rows[position][2]

    def pixels(self, position: int) -> np.ndarray:
        file, row, _ = self._rows[position]
        try:
            with self._lock:
                if file not in self._open_files:
                    self._open_files[file] = self._h5py.File(file, "r")
                pixels = self._open_files[file]["images"][row]
        except OSError as error:
            name = self.index().names[position]
            raise DataError(f"{name} cannot be read from {file}: {error}") from error
        return pixels[..., ::-1] if self.options.bgr else pixels

    @cached_property
    def _parts(self) -> list[Part]:
        root = existing_folder(self.root, LAYOUT)
        parts: list[Part] = []
        for file in sorted(root.iterdir()):
            domain, _, part = file.stem.rpartition("_")
            if file.suffix.lower() in SUFFIXES and domain and part in PARTS:
                split = PARTS[part]
                if split == Split.TEST and self.options.test_is_whole_domain:
                    split = Split.UNSEEN
                parts.append(Part(domain, split, file, self._labels(file)))
        if not parts:
            raise DataError(f"no HDF5 files of that form in {root}; expected {LAYOUT}")
        return parts

    def _labels(self, file: Path) -> np.ndarray:
        """The labels of a file, after a look at the shape and kind of its images."""
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

    def _classes(self, parts: list[Part]) -> tuple[str, ...]:
        first = self.options.first_label
        present = sorted({int(label) for part in parts for label in np.unique(part.labels)})
        names = self.options.class_names
        last = first + len(names) - 1 if names else present[-1]
        strange = [str(label) for label in present if not first <= label <= last]
        if strange:
            raise DataError(
                f"labels outside {first}..{last}: {first_few(strange)}; "
                f"set data.first_label (now {first}) or data.class_names"
            )
        return names or tuple(str(label) for label in range(first, last + 1))

    def _splits(self, parts: list[Part], images: list[LabelledImage]) -> np.ndarray:
        """By file; a domain without a val file gives a share of its train images, by name."""
        names = [image.name for image in images]
        drawn = held_out(names, self.config.validation_share, 0, self.config.split_seed)
        splits = np.repeat([part.split for part in parts], [len(part.labels) for part in parts])
        validated = {part.domain for part in parts if part.split == Split.VALIDATION}
        alone = np.array([image.domain not in validated for image in images])
        return np.where(alone & (splits == Split.TRAIN), drawn, splits)
