"""DomainNet with its official lists (Peng et al., Moment Matching for Multi-Source DA)."""

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.data.files import FileDataset, existing_folder, first_few
from unseen.data.index import Index, Split
from unseen.data.lists import Entry, check_files, check_lists_exist, read_list
from unseen.data.splits import held_out
from unseen.errors import DataError

LAYOUT = "a folder with <domain>/<class>/* and the lists '<domain>_{train,test}.txt'"


class DomainNet(FileDataset):
    """Official train and test lists; `validation_share` is taken from train by name."""

    folder_name: ClassVar[str | None] = "DomainNet"

    def find(self) -> tuple[Index, Path, tuple[str, ...]]:
        root = existing_folder(self.root, LAYOUT)
        train_lists = sorted(root.glob("*_train.txt"))
        if not train_lists:
            raise DataError(f"no '*_train.txt' in {root}; expected {LAYOUT}")
        domains = tuple(file.name.removesuffix("_train.txt") for file in train_lists)
        check_lists_exist(root / f"{domain}_test.txt" for domain in domains)
        remarks: list[str] = []
        train: dict[str, Entry] = {}
        test: dict[str, Entry] = {}
        for domain in domains:
            train.update(_entries(root / f"{domain}_train.txt", domain))
            test.update(_entries(root / f"{domain}_test.txt", domain))
        twice = sorted(train.keys() & test.keys())
        if twice:
            remarks.append(f"in train and test, used for test: {first_few(twice)}")
        entries = train | test
        names = tuple(entries)
        remarks += check_files(names, root, domains)
        classes = _classes(entries.values(), remarks)
        numbers = {name: number for number, name in enumerate(classes)}
        positions = {domain: number for number, domain in enumerate(domains)}
        index = Index(
            classes,
            domains,
            names,
            np.array([numbers[entry.class_name] for entry in entries.values()], dtype=np.int64),
            np.array([positions[name.partition("/")[0]] for name in names], dtype=np.int64),
            self._splits(names, test),
            official_test=True,
            remarks=tuple(remarks),
        )
        return index, root, names

    def _splits(self, names: tuple[str, ...], test: Collection[str]) -> np.ndarray:
        splits = held_out(names, self.config.validation_share, 0, self.config.split_seed)
        splits[[name in test for name in names]] = Split.TEST
        return splits


def _entries(file: Path, domain: str) -> dict[str, Entry]:
    entries = {entry.name: entry for entry in read_list(file)}
    strange = [name for name in entries if not name.startswith(f"{domain}/")]
    if strange:
        raise DataError(f"{file.name} names images of another domain: {first_few(strange)}")
    return entries


def _classes(entries: Collection[Entry], remarks: list[str]) -> tuple[str, ...]:
    """Folder names in the order of their labels; remarks on folders with more than one label."""
    labels: dict[str, int] = {}
    unequal: set[str] = set()
    for entry in entries:
        if labels.setdefault(entry.class_name, entry.label) != entry.label:
            unequal.add(entry.class_name)
    if unequal:
        remarks.append(
            f"several labels for one class; the folder's name is used: {first_few(sorted(unequal))}"
        )
    return tuple(sorted(labels, key=lambda name: (labels[name], name)))
