"""PACS with its official lists (Li et al., Deeper, Broader and Artier Domain Generalization)."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.data.files import FileDataset, existing_folder, first_few
from unseen.data.index import Index, Split
from unseen.data.lists import Entry, check_files, check_lists_exist, read_list
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

    def find(self) -> tuple[Index, Path, list[str]]:
        root = existing_folder(self.root, LAYOUT)
        lists = _folder_of_lists(root)
        domains = tuple(
            sorted(file.name.removesuffix("_train_kfold.txt") for file in _train_lists(lists))
        )
        images = _folder_of_images(root, domains)
        label_of: dict[str, int] = {}
        domain_of: list[int] = []
        splits: list[int] = []
        remarks: list[str] = []
        for number, domain in enumerate(domains):
            rows = _official_rows(lists, domain, remarks)
            label_of.update((name, CLASSES.index(entry.class_name)) for name, (entry, _) in rows)
            domain_of += [number] * len(rows)
            splits += [split for _, (_, split) in rows]
        names = tuple(label_of)
        remarks += check_files(names, images, domains)
        index = Index(
            CLASSES,
            domains,
            names,
            np.array(list(label_of.values()), dtype=np.int64),
            np.array(domain_of, dtype=np.int64),
            np.array(splits, dtype=np.uint8),
            remarks=tuple(remarks),
        )
        return index, images, list(names)


def _official_rows(
    lists: Path, domain: str, remarks: list[str]
) -> list[tuple[str, tuple[Entry, Split]]]:
    """One domain's images with their split, in the order of the lists."""
    files = {part: lists / f"{domain}_{part}_kfold.txt" for part in ("train", "crossval", "test")}
    check_lists_exist(files.values())
    train, crossval, test = (_checked_entries(file, domain, remarks) for file in files.values())
    twice = sorted(train.keys() & crossval.keys())
    if twice:
        remarks.append(f"{domain}: in train and crossval, used for crossval: {first_few(twice)}")
    listed = train.keys() | crossval.keys()
    unlisted = sorted(listed - test.keys())
    if unlisted:
        remarks.append(f"{domain}: in train or crossval but not in test: {first_few(unlisted)}")
    spare = {name: entry for name, entry in test.items() if name not in listed}
    if spare:
        remarks.append(f"{domain}: in test only, used for crossval: {first_few(sorted(spare))}")
    rows = {name: (entry, Split.TRAIN) for name, entry in train.items()}
    rows |= {name: (entry, Split.VALIDATION) for name, entry in (crossval | spare).items()}
    return list(rows.items())


def _checked_entries(file: Path, domain: str, remarks: list[str]) -> dict[str, Entry]:
    """A list by image name, after a look at its domain, classes and labels."""
    entries = read_list(file)
    for entry in entries:
        if entry.class_name not in CLASSES:
            hint = nearest(entry.class_name, CLASSES)
            raise DataError(f"{file.name} names the class '{entry.class_name}'{hint}: {entry.name}")
        if not entry.name.startswith(f"{domain}/"):
            raise DataError(f"{file.name} names an image of another domain: {entry.name}")
        if entry.label != CLASSES.index(entry.class_name) + FIRST_LABEL:
            remarks.append(
                f"{file.name}: label {entry.label} for {entry.name}; the folder's name is used"
            )
    by_name = {entry.name: entry for entry in entries}
    if len(by_name) < len(entries):
        counts = Counter(entry.name for entry in entries)
        repeated = [name for name, times in counts.items() if times > 1]
        remarks.append(f"{file.name}: named more than once: {first_few(repeated)}")
    return by_name


def _train_lists(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_train_kfold.txt"))


def _folder_of_lists(root: Path) -> Path:
    for pattern in ("", "*/", "*/*/"):
        found = sorted(root.glob(pattern + "*_train_kfold.txt"))
        if found:
            return found[0].parent
    raise DataError(f"no '*_train_kfold.txt' in {root} or two levels below; expected {LAYOUT}")


def _folder_of_images(root: Path, domains: tuple[str, ...]) -> Path:
    for folder in (root / "images", root / "kfold", root):
        if any((folder / domain).is_dir() for domain in domains):
            return folder
    raise DataError(f"no folder '{domains[0]}' with pictures in {root}; expected {LAYOUT}")
