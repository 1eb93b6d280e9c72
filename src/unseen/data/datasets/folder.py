"""Your own pictures, as root/domain/class/*."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unseen.data.classes import ClassMapping, class_names
from unseen.data.dataset import Dataset
from unseen.data.files import FileDataset, existing_folder, first_few
from unseen.data.images import is_image_name
from unseen.data.index import Index
from unseen.data.splits import held_out
from unseen.errors import DataError

LAYOUT = "root/domain/class/*, for example pictures/photo/dog/rex.jpg"


class Found(NamedTuple):
    domain: str
    source: str  # the class folder
    name: str  # domain/class/.../file


class Folder(FileDataset):
    """Domains are the folders in root, classes the folders in those; files may lie deeper."""

    class Config(Dataset.Config):
        classes: ClassMapping = None

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self.mapping = config.classes

    def find(self) -> tuple[Index, Path, tuple[str, ...]]:
        root = existing_folder(self.root, LAYOUT)
        folders = _class_folders(root)
        images = [found for domain in folders for found in _images(root, domain, folders[domain])]
        sources = {source for names in folders.values() for source in names}
        renamed = class_names(sources, self.mapping, str(root))
        images = [found for found in images if found.source in renamed]
        _check_domains(root, folders, images)
        domains = tuple(folders)
        classes = tuple(sorted({renamed[found.source] for found in images}))
        names = tuple(found.name for found in images)
        labels = [classes.index(renamed[found.source]) for found in images]
        domain_of = [domains.index(found.domain) for found in images]
        remarks = _stray_files(root, domains)
        empty = sorted(set(renamed.values()) - set(classes))
        if empty:
            remarks.append(f"class folders without images in any domain: {first_few(empty)}")
        config = self.config
        index = Index(
            classes,
            domains,
            names,
            np.array(labels, dtype=np.int64),
            np.array(domain_of, dtype=np.int64),
            held_out(names, config.validation_share, config.test_share, config.split_seed),
            remarks=(*remarks, *missing_classes(classes, domains, labels, domain_of)),
        )
        return index, root, names


def missing_classes(
    classes: tuple[str, ...], domains: tuple[str, ...], labels: list[int], domain_of: list[int]
) -> list[str]:
    """A remark for each domain that does not show every class."""
    present = set(zip(domain_of, labels, strict=True))
    remarks = []
    for number, domain in enumerate(domains):
        absent = [name for label, name in enumerate(classes) if (number, label) not in present]
        if absent:
            remarks.append(f"{domain} has no images of: {first_few(absent)}")
    return remarks


def _folders(parent: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in os.scandir(parent)
        if entry.is_dir() and not entry.name.startswith(".")
    )


def _class_folders(root: Path) -> dict[str, list[str]]:
    """Domain -> its class folders; a root without the domain level is told apart here."""
    folders = {domain: _folders(root / domain) for domain in _folders(root)}
    if not folders:
        raise DataError(f"{root} holds no folders; expected {LAYOUT}")
    if not any(folders.values()):
        direct = [domain for domain in folders if _direct_images(root / domain)]
        found = f"pictures lie directly in {first_few(direct)}" if direct else "no class folders"
        raise DataError(
            f"{root} has no domain level ({found}): it looks like root/class/*; expected {LAYOUT}. "
            f"With a single domain, put these folders into one: root/DOMAIN/class/*"
        )
    return folders


def _images(root: Path, domain: str, sources: list[str]) -> Iterator[Found]:
    for source in sources:
        for folder, below, files in os.walk(root / domain / source):
            below[:] = sorted(name for name in below if not name.startswith("."))
            place = Path(folder).relative_to(root).as_posix()
            for file in sorted(files):
                if is_image_name(file):
                    yield Found(domain, source, f"{place}/{file}")


def _check_domains(root: Path, folders: dict[str, list[str]], images: list[Found]) -> None:
    filled = {found.domain for found in images}
    empty = [domain for domain in folders if domain not in filled]
    if empty:
        raise DataError(
            f"domains without images of any class in {root}: {', '.join(empty)}; "
            f"expected {LAYOUT}. Fill or remove these folders"
        )


def _direct_images(folder: Path) -> list[str]:
    return sorted(file for file in os.listdir(folder) if is_image_name(file))  # noqa: PTH208


def _stray_files(root: Path, domains: tuple[str, ...]) -> list[str]:
    """Remarks on pictures that lie beside the class folders."""
    strays = [f"{domain}/{file}" for domain in domains for file in _direct_images(root / domain)]
    return [f"in no class folder, and not used: {first_few(strays)}"] if strays else []
