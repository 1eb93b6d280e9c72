"""HDF5 files as the original project used them: `<domain>_<split>.hdf5` with images and labels."""

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
        self._opened: dict[Path, Any] = {}

    def build_index(self) -> Index:
        # a domain without a val file gives a share of its train images, by name
        validated = {part.domain for part in self.all_parts if part.split == Split.VALIDATION}
        images = [
            image._replace(split=None)
            if image.split == Split.TRAIN and image.domain not in validated
            else image
            for image in self.listed
        ]
        return self.index_of(images, self._classes, published=[Split.TEST])

    def parts(self) -> list[Part]:
        root = existing_folder(self.root, LAYOUT)
        labels: dict[Path, list[int]] = {}
        for path in sorted(root.iterdir()):
            domain, _, part = path.stem.rpartition("_")
            if path.suffix.lower() in (".hdf5", ".h5") and domain and part in SPLITS:
                labels[path] = self._labels(path)
        if not labels:
            raise DataError(f"no HDF5 files of that form in {root}; expected {LAYOUT}")
        first, names = self.config.first_label, self.config.class_names
        present = sorted(set[int]().union(*labels.values()))
        last = first + len(names) - 1 if names else present[-1]
        if strange := [str(label) for label in present if not first <= label <= last]:
            raise DataError(
                f"labels outside {first}..{last}: {first_few(strange)}; "
                f"set data.first_label (now {first}) or data.class_names"
            )
        self._classes = names or tuple(str(label) for label in range(first, last + 1))
        parts: list[Part] = []
        for path, numbers in labels.items():
            domain, _, part = path.stem.rpartition("_")
            whole = part == "test" and self.config.test_is_whole_domain
            split = Split.UNSEEN if whole else SPLITS[part]
            classes = [self._classes[number - first] for number in numbers]
            state = f"{file_state(path)} bgr={self.config.bgr}"
            read = partial(self._pixels, path)
            parts.append(Part(path.stem, domain, split, classes, state, read))
        return parts

    def _pixels(self, path: Path, row: int) -> np.ndarray:
        try:
            if path not in self._opened:  # h5py itself lets one thread in at a time
                self._opened[path] = self._h5py.File(path, "r")
            pixels = self._opened[path]["images"][row]
        except OSError as error:
            raise DataError(f"{path.stem}/{row:06d} cannot be read from {path}: {error}") from error
        return pixels[..., ::-1] if self.config.bgr else pixels

    def _labels(self, file: Path) -> list[int]:
        """Read the labels of a file, after a look at the shape and kind of its images."""
        try:
            with self._h5py.File(file, "r") as opened:
                images, labels = opened["images"], np.asarray(opened["labels"][()]).ravel()
                shape, kind = images.shape, images.dtype
        except (OSError, KeyError) as error:
            raise DataError(f"{file} cannot be used ({error}); expected {LAYOUT}") from error
        if len(shape) != 4 or shape[3] != 3 or kind != np.uint8:
            raise DataError(f"{file}: 'images' is {kind} {list(shape)}; expected {LAYOUT}")
        if len(labels) != shape[0] or len(labels) == 0:
            raise DataError(f"{file}: {len(labels)} labels for {shape[0]} images")
        return labels.astype(np.int64).tolist()
