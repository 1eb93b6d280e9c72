"""PACS with its official lists (Li et al., Deeper, Broader and Artier Domain Generalization)."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.data.dataset import Index, LabelledImage, Published, Split
from unseen.data.files import (
    FileDataset,
    check_files,
    check_lists_exist,
    existing_folder,
    first_few,
    read_list,
)
from unseen.errors import DataError, nearest

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FIRST_LABEL = 1
LAYOUT = (
    "the PACS folder: the lists '<domain>_{train,crossval,test}_kfold.txt' in it or below it, and "
    "the pictures as <domain>/<class>/* in it, in images/ or in kfold/"
)


class PACS(FileDataset):
    """train trains, crossval validates; the test list is the whole domain, for when it is unseen.

    The official art_painting crossval list labels one dog 0 and names another one twice, in place
    of a third. So the class is the folder's name, and what only test names joins crossval.
    """

    folder_name: ClassVar[str | None] = "PACS"

    @classmethod
    def published_size(cls) -> Published | None:
        return Published(domains=4, classes=len(CLASSES), images=9991)

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        lists = _folder_of_lists(root)
        train_lists = sorted(lists.glob("*_train_kfold.txt"))
        domains = sorted(file.name.removesuffix("_train_kfold.txt") for file in train_lists)
        folder = _folder_of_images(root, domains)
        splits: dict[LabelledImage, Split] = {}
        remarks: list[str] = []
        for domain in domains:
            splits |= _official_splits(lists, domain, remarks)
        remarks += check_files(splits, folder, domains)
        values = np.array(list(splits.values()))
        return Index.of(list(splits), values, CLASSES, remarks=remarks), folder


def _official_splits(lists: Path, domain: str, remarks: list[str]) -> dict[LabelledImage, Split]:
    """One domain's images with their split, in the order of the lists."""
    files = [lists / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")]
    check_lists_exist(files)
    train, crossval, test = (_checked(file, domain, remarks) for file in files)
    listed = train.keys() | crossval.keys()
    spare = [image for image in test if image not in listed]
    oddities = {
        "in train and crossval, used for crossval": train.keys() & crossval.keys(),
        "in train or crossval but not in test": listed - test.keys(),
        "in test only, used for crossval": spare,
    }
    for oddity, images in oddities.items():
        if images:
            names = first_few(sorted(image.name for image in images))
            remarks.append(f"{domain}: {oddity}: {names}")
    held_out = [*crossval, *spare]
    return dict.fromkeys(train, Split.TRAIN) | dict.fromkeys(held_out, Split.VALIDATION)


def _checked(file: Path, domain: str, remarks: list[str]) -> dict[LabelledImage, int]:
    """A list without repetitions, after a look at its classes and labels."""
    listed = read_list(file, domain)
    for image, label in listed:
        if image.class_name not in CLASSES:
            hint = nearest(image.class_name, CLASSES)
            raise DataError(f"{file.name} names the class '{image.class_name}'{hint}: {image.name}")
        if label != CLASSES.index(image.class_name) + FIRST_LABEL:
            remarks.append(
                f"{file.name}: label {label} for {image.name}; the folder's name is used"
            )
    counts = Counter(image.name for image, _ in listed)
    repeated = [name for name, times in counts.items() if times > 1]
    if repeated:
        remarks.append(f"{file.name}: named more than once: {first_few(repeated)}")
    return dict(listed)


def _folder_of_lists(root: Path) -> Path:
    for pattern in ("", "*/", "*/*/"):
        found = sorted(root.glob(pattern + "*_train_kfold.txt"))
        if found:
            return found[0].parent
    raise DataError(f"no '*_train_kfold.txt' in {root} or two levels below; expected {LAYOUT}")


def _folder_of_images(root: Path, domains: list[str]) -> Path:
    for folder in (root / "images", root / "kfold", root):
        if any((folder / domain).is_dir() for domain in domains):
            return folder
    raise DataError(f"no folder '{domains[0]}' with pictures in {root}; expected {LAYOUT}")
