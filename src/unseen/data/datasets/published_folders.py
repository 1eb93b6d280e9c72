"""VLCS, Office-Home, TerraIncognita and Office-31: published folders of pictures, `domain/class/*`.

Each is a declaration of facts. A folder that is missing or has another name stops with the
difference; a number of images that differs from the published one is remarked.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from unseen.data.dataset import FileDataset, Index, LabelledImage, Published, Split
from unseen.data.images import existing_folder, folders_in, images_in
from unseen.errors import DataError, first_few, nearest

PARTS = {"train": Split.TRAIN, "crossval": Split.VALIDATION, "test": Split.TEST}


class PublishedFolders(FileDataset):
    """A subclass declares the facts; its published size counts all images."""

    title: ClassVar[str]
    domains: ClassVar[Mapping[str, tuple[int | None, tuple[str, ...]]]]
    """Images of each domain as published (None where only the total is), and the names under which
    copies of the dataset have its folder; the first one is the publishers'."""
    classes: ClassVar[tuple[str, ...]]
    below: ClassVar[str] = ""
    """A folder between domain and class."""
    official_parts: ClassVar[bool] = False
    """Copies with the folders train, crossval and test, and numbers for classes, exist."""

    def find(self) -> tuple[Index, Path]:
        names = ", ".join(folders[0] for _, folders in self.domains.values())
        between = f"{self.below}/" if self.below else ""
        layout = f"{self.title} as <domain>/{between}<class>/* with the domains {names}"
        root, folders = self._domain_folders(existing_folder(self.root, layout), layout)
        official = self.official_parts and all(
            (folder / part).is_dir() for folder in folders.values() for part in PARTS
        )
        problems: list[str] = []
        images: list[LabelledImage] = []
        splits: list[Split] = []
        for domain, folder in folders.items():
            for part in PARTS if official else (self.below,):
                place = folder / part
                for name, class_name in self._class_folders(place, official, problems).items():
                    prefix = (place / name).relative_to(root).as_posix()
                    files = images_in(place / name)
                    images += [LabelledImage(f"{prefix}/{f}", class_name, domain) for f in files]
                    splits += [PARTS.get(part, Split.TRAIN)] * len(files)
        if problems:
            raise DataError(f"{root} is not {layout}:\n  " + "\n  ".join(problems))
        remarks = self._differences(images, layout)
        drawn = np.array(splits) if official else self.draw_splits(image.name for image in images)
        return Index.of(images, drawn, self.classes, official, remarks), root

    def _domain_folders(self, root: Path, layout: str) -> tuple[Path, dict[str, Path]]:
        """Return the folder that holds the domains (the root, or one in it, as archives unpack),
        and the folder of each domain."""
        choices: list[tuple[Path, dict[str, Path]]] = []
        for place in (root, *(root / name for name in folders_in(root))):
            there = {name.lower(): place / name for name in folders_in(place)}
            known = {
                domain: there[name.lower()]
                for domain, (_, folders) in self.domains.items()
                for name in reversed(folders)
                if name.lower() in there
            }
            choices.append((place, known))
        place, known = max(choices, key=lambda choice: len(choice[1]))
        missing = [names[0] for domain, (_, names) in self.domains.items() if domain not in known]
        if missing:
            there = first_few(folders_in(place)) or "no folders"
            raise DataError(
                f"{place} lacks the domains {', '.join(missing)} (found: {there}); "
                f"expected {layout}"
            )
        return place, known

    def _class_folders(self, folder: Path, numbered: bool, problems: list[str]) -> dict[str, str]:
        """Return the class of each folder; what is missing or too much is added to the problems."""
        names = {str(n) if numbered else name: name for n, name in enumerate(self.classes)}
        there = folders_in(folder) if folder.is_dir() else []
        place = "/".join(folder.parts[-2:])
        missing = [name for name in names if name not in there]
        if missing:
            problems.append(f"{place} lacks the classes {first_few(missing)}")
        for name in [name for name in there if name not in names][:5]:
            problems.append(f"{place}/{name} is none of its classes{nearest(name, names)}")
        return {name: names[name] for name in there if name in names}

    def _differences(self, images: list[LabelledImage], layout: str) -> list[str]:
        """Return a remark for every number of images that is not the published one."""
        counts = Counter(image.domain for image in images)
        remarks: list[str] = []
        for domain, (published, _) in self.domains.items():
            if not counts[domain]:
                raise DataError(f"no images in {domain}; expected {layout}")
            if published not in (None, counts[domain]):
                remarks.append(
                    f"{domain} has {counts[domain]:,} images; {published:,} are published"
                )
        assert self.published_size
        total = self.published_size.images
        if len(images) != total and not remarks:
            remarks.append(f"{len(images):,} images in all; {total:,} are published")
        return remarks


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


class VLCS(PublishedFolders):
    title = folder_name = "VLCS"
    published_size = Published(domains=4, classes=5, images=10_729)
    domains: ClassVar = {
        "caltech101": (1415, ("Caltech101", "CALTECH")),
        "labelme": (2656, ("LabelMe",)),
        "sun09": (3282, ("SUN09", "SUN")),
        "voc2007": (3376, ("VOC2007", "PASCAL")),
    }
    classes = ("bird", "car", "chair", "dog", "person")
    official_parts = True


class TerraIncognita(PublishedFolders):
    title = folder_name = "TerraIncognita"
    published_size = Published(domains=4, classes=10, images=24_788)
    domains: ClassVar = {
        name: (None, (name,)) for name in (f"location_{n}" for n in (100, 38, 43, 46))
    }
    classes = _words("bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel")


class Office31(PublishedFolders):
    title, folder_name = "Office-31", "Office31"
    published_size = Published(domains=3, classes=31, images=4110)
    domains: ClassVar = {
        "amazon": (2817, ("amazon",)),
        "dslr": (498, ("dslr",)),
        "webcam": (795, ("webcam",)),
    }
    classes = _words(
        """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp
        desktop_computer file_cabinet headphones keyboard laptop_computer letter_tray mobile_phone
        monitor mouse mug paper_notebook pen phone printer projector punchers ring_binder ruler
        scissors speaker stapler tape_dispenser trash_can"""
    )
    below = "images"


class OfficeHome(PublishedFolders):
    title, folder_name = "Office-Home", "OfficeHome"
    published_size = Published(domains=4, classes=65, images=15_588)
    domains: ClassVar = {
        "art": (2427, ("Art",)),
        "clipart": (4365, ("Clipart",)),
        "product": (4439, ("Product",)),
        "real_world": (4357, ("Real World", "Real_World", "RealWorld", "Real")),
    }
    classes = _words(
        """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair
        Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet
        Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop
        Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer
        Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker
        Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam"""
    )
