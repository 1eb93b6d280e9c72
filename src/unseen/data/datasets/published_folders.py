"""VLCS, Office-Home, TerraIncognita and Office-31: published folders of pictures, `domain/class/*`.

Each is a table of facts. A folder that is missing or has another name stops with the difference; a
number of images that differs from the published one is remarked.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from unseen.data.dataset import Index, LabelledImage, Published, Split, held_out
from unseen.data.files import (
    FileDataset,
    check_files,
    check_lists_exist,
    existing_folder,
    first_few,
    read_list,
)
from unseen.data.images import is_image_name
from unseen.errors import DataError, nearest

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


PARTS = {"train": Split.TRAIN, "crossval": Split.VALIDATION, "test": Split.TEST}


class Domain(NamedTuple):
    folders: tuple[str, ...]
    """Names under which copies of the dataset have it; the first one is the publishers'."""
    images: int | None
    """As published; None where only the total is."""


class Facts(NamedTuple):
    title: str
    domains: Mapping[str, Domain]
    classes: tuple[str, ...]
    images: int
    below: str = ""
    """A folder between domain and class."""
    official_parts: bool = False
    """Copies with the folders train, crossval and test, and numbers for classes, exist."""

    @property
    def layout(self) -> str:
        names = ", ".join(domain.folders[0] for domain in self.domains.values())
        below = f"{self.below}/" if self.below else ""
        return f"{self.title} as <domain>/{below}<class>/* with the domains {names}"


class PublishedFolders(FileDataset):
    """A subclass gives the facts."""

    facts: ClassVar[Facts]

    @classmethod
    def published_size(cls) -> Published | None:
        return Published(len(cls.facts.domains), len(cls.facts.classes), cls.facts.images)

    def find(self) -> tuple[Index, Path]:
        facts = self.facts
        root, folders = _domain_folders(existing_folder(self.root, facts.layout), facts)
        official = facts.official_parts and all(_has_parts(folder) for folder in folders.values())
        problems: list[str] = []
        found: dict[LabelledImage, Split | None] = {}
        for domain, folder in folders.items():
            for part in PARTS if official else (facts.below,):
                names = _class_folders(folder / part, facts.classes, official, problems)
                split = PARTS[part] if official else None
                for image in _images(root, folder / part, domain, names):
                    found[image] = split
        if problems:
            raise DataError(f"{root} is not {facts.layout}:\n  " + "\n  ".join(problems))
        images = list(found)
        drawn = self._drawn_splits([image.name for image in images])
        splits = np.array(list(found.values())) if official else drawn
        remarks = _differences(images, facts)
        index = Index.of(images, splits, facts.classes, official_test=official, remarks=remarks)
        return index, root

    def _drawn_splits(self, names: list[str]) -> np.ndarray:
        config = self.config
        return held_out(names, config.validation_share, config.test_share, config.split_seed)


def _folders(parent: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(parent) if entry.is_dir())


def _domain_folders(root: Path, facts: Facts) -> tuple[Path, dict[str, Path]]:
    """The folder that holds the domains (the root, or one in it, as archives unpack), and they."""
    candidates = [root, *(root / name for name in _folders(root))]
    choices = [(place, _known_domains(place, facts)) for place in candidates]
    place, folders = max(choices, key=lambda choice: len(choice[1]))
    missing = [domain.folders[0] for name, domain in facts.domains.items() if name not in folders]
    if missing:
        there = first_few(_folders(place)) or "no folders"
        raise DataError(
            f"{place} lacks the domains {', '.join(missing)} (found: {there}); "
            f"expected {facts.layout}"
        )
    return place, folders


def _known_domains(place: Path, facts: Facts) -> dict[str, Path]:
    there = {name.lower(): name for name in _folders(place)}
    return {
        domain: place / there[name.lower()]
        for domain, known in facts.domains.items()
        for name in reversed(known.folders)
        if name.lower() in there
    }


def _has_parts(folder: Path) -> bool:
    return all((folder / part).is_dir() for part in PARTS)


def _class_folders(
    folder: Path, classes: tuple[str, ...], numbered: bool, problems: list[str]
) -> dict[str, str]:
    """Folder -> class; what is missing, and what is too much, is added to the problems."""
    expected = {str(n): name for n, name in enumerate(classes)} if numbered else None
    names = expected or {name: name for name in classes}
    there = _folders(folder) if folder.is_dir() else []
    place = "/".join(folder.parts[-2:])
    missing = [name for name in names if name not in there]
    strange = [name for name in there if name not in names and not name.startswith(".")]
    if missing:
        problems.append(f"{place} lacks the classes {first_few(missing)}")
    for name in strange[:5]:
        problems.append(f"{place}/{name} is none of its classes{nearest(name, names)}")
    return {name: names[name] for name in there if name in names}


def _images(
    root: Path, folder: Path, domain: str, names: Mapping[str, str]
) -> Iterator[LabelledImage]:
    for name, class_name in names.items():
        place = (folder / name).relative_to(root).as_posix()
        for file in sorted(os.listdir(folder / name)):  # noqa: PTH208, twice as fast
            if is_image_name(file):
                yield LabelledImage(f"{place}/{file}", class_name, domain)


def _differences(images: list[LabelledImage], facts: Facts) -> list[str]:
    """A remark for every number of images that is not the published one."""
    counts = dict.fromkeys(facts.domains, 0)
    for image in images:
        counts[image.domain] += 1
    remarks: list[str] = []
    for domain, count in counts.items():
        if not count:
            raise DataError(f"no images in {domain}; expected {facts.layout}")
        published = facts.domains[domain].images
        if published not in (None, count):
            remarks.append(f"{domain} has {count:,} images; {published:,} are published")
    if len(images) != facts.images and not remarks:
        remarks.append(f"{len(images):,} images in all; {facts.images:,} are published")
    return remarks


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class VLCS(PublishedFolders):
    folder_name: ClassVar[str | None] = "VLCS"
    facts: ClassVar[Facts] = Facts(
        "VLCS",
        {
            "caltech101": Domain(("Caltech101", "CALTECH"), 1415),
            "labelme": Domain(("LabelMe",), 2656),
            "sun09": Domain(("SUN09", "SUN"), 3282),
            "voc2007": Domain(("VOC2007", "PASCAL"), 3376),
        },
        ("bird", "car", "chair", "dog", "person"),
        10_729,
        official_parts=True,
    )


class TerraIncognita(PublishedFolders):
    folder_name: ClassVar[str | None] = "TerraIncognita"
    facts: ClassVar[Facts] = Facts(
        "TerraIncognita",
        {f"location_{place}": Domain((f"location_{place}",), None) for place in (100, 38, 43, 46)},
        _words("bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel"),
        24_788,
    )


class Office31(PublishedFolders):
    folder_name: ClassVar[str | None] = "Office31"
    facts: ClassVar[Facts] = Facts(
        "Office-31",
        {
            "amazon": Domain(("amazon",), 2817),
            "dslr": Domain(("dslr",), 498),
            "webcam": Domain(("webcam",), 795),
        },
        _words(
            """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp
            desktop_computer file_cabinet headphones keyboard laptop_computer letter_tray
            mobile_phone monitor mouse mug paper_notebook pen phone printer projector punchers
            ring_binder ruler scissors speaker stapler tape_dispenser trash_can"""
        ),
        4110,
        below="images",
    )


class OfficeHome(PublishedFolders):
    folder_name: ClassVar[str | None] = "OfficeHome"
    facts: ClassVar[Facts] = Facts(
        "Office-Home",
        {
            "art": Domain(("Art",), 2427),
            "clipart": Domain(("Clipart",), 4365),
            "product": Domain(("Product",), 4439),
            "real_world": Domain(("Real World", "Real_World", "RealWorld", "Real"), 4357),
        },
        _words(
            """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles
            Chair Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan
            File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives
            Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
            Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink
            Sneakers Soda Speaker Spoon TV Table Telephone ToothBrush Toys Trash_Can
            Webcam"""
        ),
        15_588,
    )
