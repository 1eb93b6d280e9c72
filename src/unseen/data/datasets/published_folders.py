"""VLCS, Office-Home, TerraIncognita and Office-31: published folders of pictures, `domain/class/*`.

Each is a declaration of facts. A folder that is missing or has another name stops with the
difference; a number of images that differs from the published one is remarked.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from unseen.data.dataset import PUBLISHED, FileDataset
from unseen.data.images import existing_folder, folders_in, images_in
from unseen.data.index import SPLITS, Index, LabelledImage
from unseen.errors import DataError, first_few, nearest

PARTS = ("train", "crossval", "test")


class Layout(NamedTuple):
    """What is published about a dataset."""

    title: str
    domains: Mapping[str, tuple[int | None, tuple[str, ...]]]
    """Images of each domain as published (None where only the total is), and the names under which
    copies of the dataset have its folder; the first one is the publishers'."""
    classes: tuple[str, ...]
    below: str = ""
    """A folder between domain and class."""
    official_parts: bool = False
    """Copies with the folders train, crossval and test, and numbers for classes, exist."""

    def __str__(self) -> str:
        names = ", ".join(folders[0] for _, folders in self.domains.values())
        between = f"{self.below}/" if self.below else ""
        return f"{self.title} as <domain>/{between}<class>/* with the domains {names}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LAYOUTS = {
    "vlcs": Layout(
        "VLCS",
        {
            "caltech101": (1415, ("Caltech101", "CALTECH")),
            "labelme": (2656, ("LabelMe",)),
            "sun09": (3282, ("SUN09", "SUN")),
            "voc2007": (3376, ("VOC2007", "PASCAL")),
        },
        ("bird", "car", "chair", "dog", "person"),
        official_parts=True,
    ),
    "terra_incognita": Layout(
        "TerraIncognita",
        {f"location_{number}": (None, (f"location_{number}",)) for number in (100, 38, 43, 46)},
        _words("bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel"),
    ),
    "office_31": Layout(
        "Office-31",
        {"amazon": (2817, ("amazon",)), "dslr": (498, ("dslr",)), "webcam": (795, ("webcam",))},
        _words(
            """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp
            desktop_computer file_cabinet headphones keyboard laptop_computer letter_tray
            mobile_phone monitor mouse mug paper_notebook pen phone printer projector punchers
            ring_binder ruler scissors speaker stapler tape_dispenser trash_can"""
        ),
        below="images",
    ),
    "office_home": Layout(
        "Office-Home",
        {
            "art": (2427, ("Art",)),
            "clipart": (4365, ("Clipart",)),
            "product": (4439, ("Product",)),
            "real_world": (4357, ("Real World", "Real_World", "RealWorld", "Real")),
        },
        _words(
            """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles
            Chair Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan
            File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives
            Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil
            Postit_Notes Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink
            Sneakers Soda Speaker Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam"""
        ),
    ),
}


class PublishedFolders(FileDataset):
    """One of `LAYOUTS`, by the name of the dataset."""

    def find(self) -> tuple[Index, Path]:
        layout = LAYOUTS[self.config.name]
        root, folders = _domain_folders(existing_folder(self.root, str(layout)), layout)
        official = layout.official_parts and all(
            (folder / part).is_dir() for folder in folders.values() for part in PARTS
        )
        names = {str(n) if official else name: name for n, name in enumerate(layout.classes)}
        problems: list[str] = []
        images: list[LabelledImage] = []
        for domain, folder in folders.items():
            for part in PARTS if official else (layout.below,):
                place, split = folder / part, SPLITS.get(part)
                for name in _class_folders(place, names, problems):
                    prefix = (place / name).relative_to(root).as_posix()
                    images += [
                        LabelledImage(f"{prefix}/{file}", names[name], domain, split)
                        for file in images_in(place / name)
                    ]
        if problems:
            raise DataError(f"{root} is not {layout}:\n  " + "\n  ".join(problems))
        remarks = self._differences(images, layout)
        return self.index_of(images, layout.classes, remarks=remarks), root

    def _differences(self, images: list[LabelledImage], layout: Layout) -> list[str]:
        """Return a remark for every number of images that is not the published one."""
        counts = Counter(image.domain for image in images)
        remarks: list[str] = []
        for domain, (published, _) in layout.domains.items():
            if not counts[domain]:
                raise DataError(f"no images in {domain}; expected {layout}")
            if published not in (None, counts[domain]):
                remarks.append(
                    f"{domain} has {counts[domain]:,} images; {published:,} are published"
                )
        total = PUBLISHED[self.config.name].images
        if len(images) != total and not remarks:
            remarks.append(f"{len(images):,} images in all; {total:,} are published")
        return remarks


def _domain_folders(root: Path, layout: Layout) -> tuple[Path, dict[str, Path]]:
    """Return the folder that holds the domains (the root, or one in it, as archives unpack), and
    the folder of each domain."""
    choices: list[tuple[Path, dict[str, Path]]] = []
    for place in (root, *(root / name for name in folders_in(root))):
        there = {name.lower(): place / name for name in folders_in(place)}
        known = {
            domain: there[name.lower()]
            for domain, (_, folders) in layout.domains.items()
            for name in reversed(folders)
            if name.lower() in there
        }
        choices.append((place, known))
    place, known = max(choices, key=lambda choice: len(choice[1]))
    missing = [names[0] for domain, (_, names) in layout.domains.items() if domain not in known]
    if missing:
        there = first_few(folders_in(place)) or "no folders"
        raise DataError(
            f"{place} lacks the domains {', '.join(missing)} (found: {there}); expected {layout}"
        )
    return place, known


def _class_folders(folder: Path, names: Mapping[str, str], problems: list[str]) -> list[str]:
    """Return the folders of classes that are there; what is missing or too much is a problem."""
    there = folders_in(folder) if folder.is_dir() else []
    place = "/".join(folder.parts[-2:])
    missing = [name for name in names if name not in there]
    if missing:
        problems.append(f"{place} lacks the classes {first_few(missing)}")
    for name in [name for name in there if name not in names][:5]:
        problems.append(f"{place}/{name} is none of its classes{nearest(name, names)}")
    return [name for name in there if name in names]
