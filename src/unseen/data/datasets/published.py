"""Published datasets of image files: PACS (Li et al. 2017) and DomainNet (Peng et al. 2019), whose
official lists say which images train; VLCS, Office-Home, TerraIncognita and Office-31, folders
`domain/class/*`; Camelyon17, iWildCam and FMoW as WILDS publishes them (Koh et al. 2021).

What is missing or has another name stops with the difference; a number of images that differs from
the published one is remarked.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from unseen.data.dataset import Dataset, FileDataset
from unseen.data.images import csv_rows, existing_folder, folders_in, images_in, is_image, read_text
from unseen.data.index import SPLITS, Index, LabelledImage, Split
from unseen.errors import DataError, first_few, nearest

Labels = dict[LabelledImage, int]
PARTS = ("train", "crossval", "test")


def check_files(images: Iterable[LabelledImage], folder: Path) -> set[str]:
    """Raise DataError when lists name missing files; return the files beside them in no list."""
    listed = {image.name for image in images}
    there = {
        f"{place}/{file}"
        for place in {name.rpartition("/")[0] for name in listed}
        if (folder / place).is_dir()
        for file in os.listdir(folder / place)  # noqa: PTH208, twice as fast
    }
    if missing := sorted(listed - there):
        raise DataError(
            f"the lists name {len(missing):,} of {len(listed):,} files that are not in {folder}: "
            f"{first_few(missing)}; download and unpack the dataset again, or set data.root to all "
            "of it"
        )
    return there - listed


def remark(what: str, names: Iterable[str]) -> list[str]:
    """Return a remark on images that are treated oddly, if there are any."""
    names = sorted(names)
    return [f"{what}: {first_few(names)}"] if names else []


def read_list(file: Path, domain: str) -> list[tuple[LabelledImage, int]]:
    """Read a list, lines of `domain/class/file label`; all malformed lines are reported at once."""
    listed: list[tuple[LabelledImage, int]] = []
    malformed: list[str] = []
    lines = read_text(file, "an official list").splitlines()
    for number, line in enumerate(map(str.strip, lines), start=1):
        name, _, label = line.rpartition(" ")
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == domain and label.isdigit():
            listed.append((LabelledImage(name, parts[1], parts[0]), int(label)))
        elif line:
            malformed.append(f"line {number}: '{line}'")
    if malformed:
        raise DataError(
            f"{file} has lines that are not '{domain}/class/file label': {first_few(malformed)}"
        )
    return listed


class PACS(FileDataset):
    """train trains, crossval validates; the test list is the whole domain, for when it is unseen.

    The official art_painting crossval list labels one dog 0 and names another one twice, in place
    of a third. So the class is the folder's name, and what only test names joins crossval.
    """

    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    layout = (
        "the PACS folder: the lists '<domain>_{train,crossval,test}_kfold.txt' in it or below it, "
        "and the images as <domain>/<class>/* in it, in images/ or in kfold/"
    )

    def find(self) -> tuple[Index, Path]:
        root, ending = existing_folder(self.root, self.layout), "_train_kfold.txt"
        found = (sorted(root.glob(f"{above}*{ending}")) for above in ("", "*/", "*/*/"))
        lists = next((files for files in found if files), list[Path]())
        domains = [file.name.removesuffix(ending) for file in lists]
        places = (root / "images", root / "kfold", root)
        folder = next((p for p in places if any((p / d).is_dir() for d in domains)), None)
        if folder is None:
            what = f"folder '{domains[0]}' with images" if domains else f"'*{ending}'"
            raise DataError(f"no {what} in {root} or two levels below; expected {self.layout}")
        images: list[LabelledImage] = []
        remarks: list[str] = []
        for file, domain in zip(lists, domains, strict=True):
            images += self._official_splits(file.parent, domain, remarks)
        remarks += _spare(images, folder)
        return self.index_of(images, self.classes, remarks=remarks), folder

    def _official_splits(self, lists: Path, domain: str, remarks: list[str]) -> list[LabelledImage]:
        """Return one domain's images with their split, in the order of the lists."""
        files = (lists / f"{domain}_{part}_kfold.txt" for part in PARTS)
        train, crossval, test = (self._checked(file, domain, remarks) for file in files)
        listed = train.keys() | crossval.keys()
        spare = [image for image in test if image not in listed]
        for what, images in (
            ("in train and crossval, used for crossval", train.keys() & crossval.keys()),
            ("in train or crossval but not in test", listed - test.keys()),
            ("in test only, used for crossval", spare),
        ):
            remarks += remark(f"{domain}: {what}", (image.name for image in images))
        validated = dict.fromkeys([*crossval, *spare], Split.VALIDATION)
        splits = dict.fromkeys(train, Split.TRAIN) | validated
        return [image._replace(split=split) for image, split in splits.items()]

    def _checked(self, file: Path, domain: str, remarks: list[str]) -> Labels:
        """Return a list without repetitions, after a look at its classes and labels."""
        listed = read_list(file, domain)
        for image, label in listed:
            name = image.class_name
            if name not in self.classes:
                hint = nearest(name, self.classes)
                raise DataError(f"{file.name} names the class '{name}'{hint}: {image.name}")
            if label != self.classes.index(name) + 1:
                label_of = f"label {label} for {image.name}"
                remarks.append(f"{file.name}: {label_of}; the folder's name is used")
        counts = Counter(image.name for image, _ in listed)
        repeated = [name for name, times in counts.items() if times > 1]
        remarks += remark(f"{file.name}: named more than once", repeated)
        return dict(listed)


class DomainNet(FileDataset):
    """Official train and test lists; `validation_share` is taken from train by name."""

    layout = "a folder with <domain>/<class>/* and the lists '<domain>_{train,test}.txt'"

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, self.layout)
        train: Labels = {}
        test: Labels = {}
        for file in sorted(root.glob("*_train.txt")):
            domain = file.name.removesuffix("_train.txt")
            train.update(read_list(file, domain))
            test.update(read_list(root / f"{domain}_test.txt", domain))
        if not train:
            raise DataError(f"no '*_train.txt' in {root}; expected {self.layout}")
        both = (image.name for image in train.keys() & test.keys())
        remarks = remark("in train and test, used for test", both)
        labels = train | test
        remarks += _spare(labels, root)
        label_of = {image.class_name: label for image, label in reversed(labels.items())}
        classes = sorted(label_of, key=lambda name: (label_of[name], name))
        images = [image._replace(split=Split.TEST) if image in test else image for image in labels]
        return self.index_of(images, classes, remarks=remarks), root


def _spare(images: Iterable[LabelledImage], folder: Path) -> list[str]:
    places = (name.rpartition("/") for name in check_files(images, folder))
    spare = (f"{place}/{file}" for place, _, file in places if is_image(folder / place, file))
    return remark("in no list, and not used", spare)


class Layout(NamedTuple):
    """What is published about folders of pictures."""

    title: str
    domains: Mapping[str, tuple[int | None, tuple[str, ...]]]
    """Images of each domain as published (None where only the total is), and the names under which
    copies of the dataset have its folder; the first one is the publishers'."""
    classes: str
    images: int = 0
    """In all domains together, where nothing else is published."""
    below: str = ""
    """A folder between domain and class."""
    official_parts: bool = False
    """Copies with the folders train, crossval and test, and numbers for classes, exist."""

    def __str__(self) -> str:
        names = ", ".join(folders[0] for _, folders in self.domains.values())
        place = f"<domain>/{self.below}/<class>".replace("//", "/")
        return f"{self.title} as {place}/* with the domains {names}"


LAYOUTS = {
    "vlcs": Layout(
        "VLCS",
        {
            "caltech101": (1415, ("Caltech101", "CALTECH")),
            "labelme": (2656, ("LabelMe",)),
            "sun09": (3282, ("SUN09", "SUN")),
            "voc2007": (3376, ("VOC2007", "PASCAL")),
        },
        "bird car chair dog person",
        official_parts=True,
    ),
    "terra_incognita": Layout(
        "TerraIncognita",
        {f"location_{number}": (None, (f"location_{number}",)) for number in (100, 38, 43, 46)},
        "bird bobcat cat coyote dog empty opossum rabbit raccoon squirrel",
        images=24_788,
    ),
    "office_31": Layout(
        "Office-31",
        {"amazon": (2817, ("amazon",)), "dslr": (498, ("dslr",)), "webcam": (795, ("webcam",))},
        """back_pack bike bike_helmet bookcase bottle calculator desk_chair desk_lamp
        desktop_computer file_cabinet headphones keyboard laptop_computer letter_tray
        mobile_phone monitor mouse mug paper_notebook pen phone printer projector punchers
        ring_binder ruler scissors speaker stapler tape_dispenser trash_can""",
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
        """Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair
        Clipboards Computer Couch Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet
        Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle Keyboard Knives Lamp_Shade Laptop
        Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes Printer
        Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker
        Spoon TV Table Telephone ToothBrush Toys Trash_Can Webcam""",
    ),
}


class Folders(FileDataset):
    """One of `LAYOUTS`, by the name of the dataset."""

    def find(self) -> tuple[Index, Path]:
        layout = LAYOUTS[self.config.name]
        classes = layout.classes.split()
        root, folders = _domain_folders(existing_folder(self.root, str(layout)), layout)
        official = layout.official_parts and all(
            (folder / part).is_dir() for folder in folders.values() for part in PARTS
        )
        names = {str(n) if official else name: name for n, name in enumerate(classes)}
        problems: list[str] = []
        images: list[LabelledImage] = []
        for domain, folder in folders.items():
            for part in PARTS if official else (layout.below,):
                place = folder / part
                there = folders_in(place) if place.is_dir() else []
                short = place.relative_to(root).as_posix()
                lacking = [name for name in names if name not in there]
                problems += [f"{short} lacks the classes {first_few(lacking)}"] if lacking else []
                unknown = [name for name in there if name not in names][:5]
                problems += [
                    f"{short}/{n} is none of its classes{nearest(n, names)}" for n in unknown
                ]
                images += [
                    LabelledImage(f"{short}/{name}/{file}", names[name], domain, SPLITS.get(part))
                    for name in there
                    if name in names
                    for file in images_in(place / name)
                ]
        counts = Counter(image.domain for image in images)
        problems += [f"no images in {domain}" for domain in folders if not counts[domain]]
        if problems:
            raise DataError(f"{root} is not {layout}:\n  " + "\n  ".join(problems))
        remarks = [
            f"{domain} has {counts[domain]:,} images; {published:,} are published"
            for domain, (published, _) in layout.domains.items()
            if published not in (None, counts[domain])
        ]
        if len(images) != layout.images and layout.images:
            remarks.append(f"{len(images):,} images in all; {layout.images:,} are published")
        return self.index_of(images, classes, remarks=remarks), root


def _domain_folders(root: Path, layout: Layout) -> tuple[Path, dict[str, Path]]:
    """Return the folder that holds the domains (the root, or one in it, as archives unpack), and
    the folder of each domain."""
    choices: dict[Path, dict[str, Path]] = {}
    for place in (root, *(root / name for name in folders_in(root))):
        there = {name.lower(): place / name for name in folders_in(place)}
        choices[place] = {
            domain: there[name.lower()]
            for domain, (_, folders) in layout.domains.items()
            for name in reversed(folders)
            if name.lower() in there
        }
    place = max(choices, key=lambda choice: len(choices[choice]))
    known = choices[place]
    missing = [names[0] for domain, (_, names) in layout.domains.items() if domain not in known]
    if missing:
        there = first_few(folders_in(place)) or "no folders"
        raise DataError(
            f"{place} lacks the domains {', '.join(missing)} (found: {there}); expected {layout}"
        )
    return place, known


Row = tuple[LabelledImage, str]
"""An image in its place (hospital, camera or region) with the split that is published within it,
and its part of the official split: train, val, test, or empty for none of them."""


def camelyon17(folder: Path) -> Iterator[Row]:
    """Tissue with and without a tumour, from five hospitals; official test: hospital_2."""
    names = {"0": "normal", "1": "tumor"}
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
    for line in _table(folder / "metadata.csv", columns):
        node = f"patient_{line['patient']}_node_{line['node']}"
        file = f"patches/{node}/patch_{node}_x_{line['x_coord']}_y_{line['y_coord']}.png"
        class_name = names.get(line["tumor"], line["tumor"])
        split = Split.VALIDATION if line["split"] == "1" else Split.TRAIN
        image = LabelledImage(file, class_name, f"hospital_{line['center']}", split)
        yield image, {"1": "val", "2": "test"}.get(line["center"], "train")


def iwildcam(folder: Path) -> Iterator[Row]:
    """Animals by camera traps, 323 places; classes are numbers unless categories.csv is there."""
    splits = {"train": Split.TRAIN, "id_val": Split.VALIDATION, "id_test": Split.TEST}
    categories = folder / "categories.csv"
    lines = _table(categories, ("y", "name")) if categories.is_file() else ()
    names = {line["y"]: line["name"] for line in lines}
    columns = ("split", "location_remapped", "filename", "y")
    for line in _table(folder / "metadata.csv", columns):
        split = splits.get(line["split"])
        place = f"camera_{int(line['location_remapped']):03d}"
        class_name = names.get(line["y"]) or f"animal_{int(line['y']):03d}"
        image = LabelledImage(f"train/{line['filename']}", class_name, place, split)
        yield image, line["split"] if split is None else "train"


def fmow(folder: Path) -> Iterator[Row]:
    """Land use from satellites, by region of the world; the official split is by year."""
    countries = _table(folder / "country_code_mapping.csv", ("alpha-3", "region"))
    regions = {line["alpha-3"]: line["region"] for line in countries}
    columns = ("split", "category", "country_code", "timestamp")
    for number, line in enumerate(_table(folder / "rgb_metadata.csv", columns)):
        if line["split"] == "seq":  # kept back by the publishers
            continue
        year = int(line["timestamp"][:4])
        part = "train" if year < 2013 else "val" if year < 2016 else "test"
        region = regions.get(line["country_code"]) or "Other"
        file, split = f"images/rgb_img_{number}.png", SPLITS.get(line["split"])
        image = LabelledImage(file, line["category"], region, split)
        yield image, part if part in ("train", line["split"]) else ""


def _table(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Read the lines of a published CSV file."""
    return (row for _, row in csv_rows(file, columns, "the published file"))


LAND_USE = """airport airport_hangar airport_terminal amusement_park aquaculture archaeological_site
barn border_checkpoint burial_site car_dealership construction_site crop_field dam debris_or_rubble
educational_institution electric_substation factory_or_powerplant fire_station flooded_road fountain
gas_station golf_course ground_transportation_station helipad hospital impoverished_settlement
interchange lake_or_pond lighthouse military_facility multi-unit_residential nuclear_powerplant
office_building oil_or_gas_facility park parking_lot_or_garage place_of_worship police_station port
prison race_track railway_bridge recreational_facility road_bridge runway shipyard shopping_mall
single-unit_residential smokestack solar_farm space_facility stadium storage_tank surface_mine
swimming_pool toll_booth tower tunnel_opening waste_disposal water_treatment_facility wind_farm
zoo"""


class Table(NamedTuple):
    """The table of a dataset of WILDS, and what is published about it."""

    file: str
    rows: Callable[[Path], Iterator[Row]]
    parts: tuple[int, int, int]
    """Images in the parts of the official split: train, val, test."""
    n_classes: int
    classes: tuple[str, ...] = ()
    """Empty: those that the table names."""


TABLES = {
    "camelyon17": Table(
        "metadata.csv", camelyon17, (335_996, 34_904, 85_054), 2, ("normal", "tumor")
    ),
    "iwildcam": Table("metadata.csv", iwildcam, (145_277, 14_961, 42_791), 182),
    "fmow": Table("rgb_metadata.csv", fmow, (99_673, 19_915, 22_108), 62, tuple(LAND_USE.split())),
}


class Wilds(FileDataset):
    """One of `TABLES`, by the name of the dataset."""

    class Config(Dataset.Config):
        domains: Literal["places", "parts"] = "places"
        """A domain is a place (hospital, camera, region), or a part of the official split: `train`
        (with its test images), `val`, `test`."""

    config: Config

    def find(self) -> tuple[Index, Path]:
        table = TABLES[self.config.name]
        layout = f"the unpacked folder of WILDS with {table.file}"
        root = existing_folder(self.root, layout)
        places = (root, *sorted(root.iterdir()))
        folder = next((place for place in places if (place / table.file).is_file()), None)
        if folder is None:
            raise DataError(f"no {table.file} in {root} or a folder in it; expected {layout}")
        by_part = self.config.domains == "parts"
        rows = [(image, part) for image, part in table.rows(folder) if part or not by_part]
        classes = {image.class_name for image, _ in rows}
        strange = sorted(classes.difference(table.classes)) if table.classes else []
        if strange or not rows:
            names = ", ".join(f"'{name}'{nearest(name, table.classes)}" for name in strange[:5])
            problem = f"names classes that are not published: {names}" if rows else "is empty"
            raise DataError(f"{folder / table.file} {problem}; download it again")
        images = [image for image, _ in rows]
        check_files(images, folder)
        counts = Counter(part for _, part in rows)
        remarks = [
            f"the official {part} part has {counts[part]:,} images; {count:,} are published"
            for part, count in zip(("train", "val", "test"), table.parts, strict=True)
            if counts[part] != count
        ]
        if len(classes) != table.n_classes:
            found = f"{len(classes)} classes have images"
            remarks.insert(0, f"{found}; {table.n_classes} are published")
        if by_part:
            images = [
                image._replace(domain=part, split=image.split if part == "train" else None)
                for image, part in rows
            ]
        return self.index_of(images, table.classes, remarks=remarks, published=()), folder
