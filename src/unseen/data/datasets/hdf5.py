"""HDF5 files as the original project used them: `<domain>_<split>.hdf5` with images and labels."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.dataset import Dataset, Part, PartsDataset
from unseen.data.images import existing_folder, file_state
from unseen.data.index import SPLITS, Index, Split
from unseen.errors import DataError, first_few
from unseen.optional import require

LAYOUT = (
    "a folder with files '<domain>_{train,val,test}.hdf5', each with the arrays "
    "'images' [N, height, width, 3] of uint8 and 'labels' [N]"
)


class HDF5(PartsDataset):
    """Labels are read from their own arrays; images are read one by one, in `prepare` only."""

    class Config(Dataset.Config):
        bgr: bool = False
        """The arrays hold blue, green, red (as OpenCV reads; the original PACS files do)."""
        first_label: int = 0
        """The smallest label in the files (1 in the original PACS files)."""
        class_names: tuple[str, ...] | None = None
        """Names in the order of the labels; without them, classes are named by their label."""
        test_is_whole_domain: bool = False
        """Test files repeat the training images, so they count only for an unseen domain (PACS)."""

    config: Config

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self._h5py = require("h5py", "hdf5")
        self._lock = threading.Lock()
        self._opened: dict[Path, Any] = {}

    def build_index(self) -> Index:
        parts = self.all_parts
        # a domain without a val file gives a share of its train images, by name
        validated = {part.domain for part in parts if part.split == Split.VALIDATION}
        images = [
            image
            if image.split != Split.TRAIN or image.domain in validated
            else image._replace(split=None)
            for image in self.listed()
        ]
        return self.index_of(images, self._classes, published=[Split.TEST])

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, LAYOUT)
        labels: dict[Path, np.ndarray] = {}
        for path in sorted(root.iterdir()):
            domain, _, part = path.stem.rpartition("_")
            if path.suffix.lower() in (".hdf5", ".h5") and domain and part in SPLITS:
                labels[path] = self._labels(path)
        if not labels:
            raise DataError(f"no HDF5 files of that form in {root}; expected {LAYOUT}")
        self._classes = self._names_of(labels)
        return [self._part(path, labels[path] - self.config.first_label) for path in labels]

    def _part(self, path: Path, labels: np.ndarray) -> Part:
        domain, _, part = path.stem.rpartition("_")
        split = SPLITS[part]
        if split == Split.TEST and self.config.test_is_whole_domain:
            split = Split.UNSEEN
        classes = [self._classes[int(label)] for label in labels]
        state = f"{file_state(path)} bgr={self.config.bgr}"
        return Part(path.stem, domain, split, classes, state, partial(self._pixels, path))

    def _pixels(self, path: Path, row: int) -> np.ndarray:
        try:
            with self._lock:
                if path not in self._opened:
                    self._opened[path] = self._h5py.File(path, "r")
                pixels = self._opened[path]["images"][row]
        except OSError as error:
            raise DataError(f"{path.stem}/{row:06d} cannot be read from {path}: {error}") from error
        return pixels[..., ::-1] if self.config.bgr else pixels

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

    def _names_of(self, labels: dict[Path, np.ndarray]) -> tuple[str, ...]:
        """Return the names of all classes, after a look at the labels that there are."""
        first, names = self.config.first_label, self.config.class_names
        present = np.unique(np.concatenate(list(labels.values()))).tolist()
        last = first + len(names) - 1 if names else present[-1]
        strange = [str(label) for label in present if not first <= label <= last]
        if strange:
            raise DataError(
                f"labels outside {first}..{last}: {first_few(strange)}; "
                f"set data.first_label (now {first}) or data.class_names"
            )
        return names or tuple(str(label) for label in range(first, last + 1))
