"""Your own pictures, as root/domain/class/*; without labels as root/domain/*."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from unseen.data.dataset import Dataset, Index, LabelledImage, held_out
from unseen.data.files import (
    ClassMapping,
    FileDataset,
    class_names,
    existing_folder,
    first_few,
    missing_classes,
)
from unseen.data.images import is_image_name
from unseen.errors import DataError

LAYOUT = "root/domain/class/*, for example pictures/photo/dog/rex.jpg"


class Folder(FileDataset):
    """Domains are the folders in root, classes the folders in those; files may lie deeper.

    A domain with pictures and no folders in it has no labels.
    """

    class Config(Dataset.Config):
        classes: ClassMapping = None

    config: Config

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        folders = _class_folders(root)
        found = [image for domain in folders for image in _images(root, domain, folders[domain])]
        sources = {source for names in folders.values() for source in names}
        renamed = class_names(sources, self.config.classes, str(root))
        images = [
            image._replace(class_name=renamed[image.class_name])
            for image in found
            if image.class_name in renamed
        ]
        images += _unlabelled(root, folders)
        _check_domains(root, folders, images)
        config = self.config
        names = [image.name for image in images]
        splits = held_out(names, config.validation_share, config.test_share, config.split_seed)
        index = Index.of(images, splits)
        remarks = _stray_files(root, index.labelled_domains)
        empty = sorted(set(renamed.values()) - set(index.classes))
        if empty:
            remarks.append(f"class folders without images in any domain: {first_few(empty)}")
        return replace(index, remarks=(*remarks, *missing_classes(index))), root


def _folders(parent: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in os.scandir(parent)
        if entry.is_dir() and not entry.name.startswith(".")
    )


def _class_folders(root: Path) -> dict[str, list[str]]:
    """Domain -> its class folders; a root without the domain level is recognised here."""
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


def _images(root: Path, domain: str, sources: list[str]) -> Iterator[LabelledImage]:
    """By the name of their class folder."""
    for source in sources:
        for folder, below, files in os.walk(root / domain / source):
            below[:] = sorted(name for name in below if not name.startswith("."))
            place = Path(folder).relative_to(root).as_posix()
            for file in sorted(files):
                if is_image_name(file):
                    yield LabelledImage(f"{place}/{file}", source, domain)


def _unlabelled(root: Path, folders: Mapping[str, list[str]]) -> list[LabelledImage]:
    """Pictures of domains that have no class folders."""
    return [
        LabelledImage(f"{domain}/{file}", "", domain)
        for domain, classes in folders.items()
        if not classes
        for file in _direct_images(root / domain)
    ]


def _check_domains(root: Path, domains: Iterable[str], images: list[LabelledImage]) -> None:
    filled = {image.domain for image in images}
    empty = [domain for domain in domains if domain not in filled]
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
