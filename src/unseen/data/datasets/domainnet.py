"""DomainNet with its official lists (Peng et al., Moment Matching for Multi-Source DA)."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from unseen.data.dataset import Index, LabelledImage, Published, Split, held_out
from unseen.data.files import (
    FileDataset,
    check_files,
    check_lists_exist,
    existing_folder,
    first_few,
    read_list,
)
from unseen.errors import DataError

LAYOUT = "a folder with <domain>/<class>/* and the lists '<domain>_{train,test}.txt'"


class DomainNet(FileDataset):
    """Official train and test lists; `validation_share` is taken from train by name."""

    folder_name: ClassVar[str | None] = "DomainNet"

    @classmethod
    def published_size(cls) -> Published | None:
        return Published(domains=6, classes=345, images=586_575)

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        domains = [f.name.removesuffix("_train.txt") for f in sorted(root.glob("*_train.txt"))]
        if not domains:
            raise DataError(f"no '*_train.txt' in {root}; expected {LAYOUT}")
        check_lists_exist(root / f"{domain}_test.txt" for domain in domains)
        train: dict[LabelledImage, int] = {}
        test: dict[LabelledImage, int] = {}
        for domain in domains:
            train.update(read_list(root / f"{domain}_train.txt", domain))
            test.update(read_list(root / f"{domain}_test.txt", domain))
        remarks: list[str] = []
        twice = sorted(image.name for image in train.keys() & test.keys())
        if twice:
            remarks.append(f"in train and test, used for test: {first_few(twice)}")
        labels = train | test
        images = list(labels)
        remarks += check_files(images, root, domains)
        classes = _classes(labels, remarks)
        share, seed = self.config.validation_share, self.config.split_seed
        splits = held_out((image.name for image in images), share, 0, seed)
        splits[[image in test for image in images]] = Split.TEST
        return Index.of(images, splits, classes, official_test=True, remarks=remarks), root


def _classes(labels: Mapping[LabelledImage, int], remarks: list[str]) -> list[str]:
    """Folder names in the order of their labels; remarks on folders with more than one label."""
    label_of: dict[str, int] = {}
    unequal: set[str] = set()
    for image, label in labels.items():
        if label_of.setdefault(image.class_name, label) != label:
            unequal.add(image.class_name)
    if unequal:
        remarks.append(
            f"several labels for one class; the folder's name is used: {first_few(sorted(unequal))}"
        )
    return sorted(label_of, key=lambda name: (label_of[name], name))
