"""Camelyon17, iWildCam and FMoW as WILDS publishes them: images and a table (Koh et al. 2021)."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from unseen.data.dataset import Dataset, FileDataset
from unseen.data.images import existing_folder
from unseen.data.index import Index, LabelledImage, Split
from unseen.data.tables import csv_rows
from unseen.errors import DataError, first_few, nearest

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
    splits = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.TEST}
    countries = _table(folder / "country_code_mapping.csv", ("alpha-3", "region"))
    regions = {line["alpha-3"]: line["region"] for line in countries}
    columns = ("split", "category", "country_code", "timestamp")
    for number, line in enumerate(_table(folder / "rgb_metadata.csv", columns)):
        if line["split"] == "seq":  # kept back by the publishers
            continue
        year = int(line["timestamp"][:4])
        part = "train" if year < 2013 else "val" if year < 2016 else "test"
        region = regions.get(line["country_code"]) or "Other"
        file, split = f"images/rgb_img_{number}.png", splits.get(line["split"])
        image = LabelledImage(file, line["category"], region, split)
        yield image, part if part in ("train", line["split"]) else ""


class Table(NamedTuple):
    """The table of one dataset, and what is published about it."""

    file: str
    rows: Callable[[Path], Iterator[Row]]
    parts: Mapping[str, int]
    """Images in each part of the official split."""
    n_classes: int
    classes: tuple[str, ...] = ()
    """Empty: those that the table names."""


TABLES = {
    "camelyon17": Table(
        "metadata.csv",
        camelyon17,
        {"train": 335_996, "val": 34_904, "test": 85_054},
        2,
        ("normal", "tumor"),
    ),
    "iwildcam": Table(
        "metadata.csv", iwildcam, {"train": 145_277, "val": 14_961, "test": 42_791}, 182
    ),
    "fmow": Table(
        "rgb_metadata.csv",
        fmow,
        {"train": 99_673, "val": 19_915, "test": 22_108},
        62,
        tuple(LAND_USE.split()),
    ),
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
        _check(table, folder, [image for image, _ in rows])
        images = [
            image._replace(domain=part, split=image.split if part == "train" else None)
            if by_part
            else image
            for image, part in rows
        ]
        remarks = _differences(table, rows)
        return self.index_of(images, table.classes, remarks=remarks, published=()), folder


def _check(table: Table, folder: Path, images: list[LabelledImage]) -> None:
    """Refuse a table without images, with other classes, or with images that are missing."""
    if not images:
        raise DataError(f"{folder / table.file} lists no images; download it again")
    known = table.classes
    strange = sorted({image.class_name for image in images}.difference(known)) if known else []
    if strange:
        raise DataError(
            f"{folder / table.file} names classes that are not published: "
            + ", ".join(f"'{name}'{nearest(name, known)}" for name in strange[:5])
        )
    there = {
        f"{place}/{file}"
        for place in {image.name.rpartition("/")[0] for image in images}
        if (folder / place).is_dir()
        for file in os.listdir(folder / place)  # noqa: PTH208, twice as fast
    }
    missing = [image.name for image in images if image.name not in there]
    if missing:
        raise DataError(
            f"{len(missing):,} of {len(images):,} images in {table.file} are not in {folder}: "
            f"{first_few(missing)}; unpack the archive again"
        )


def _differences(table: Table, rows: list[Row]) -> list[str]:
    """Return a remark for every number that is not the published one."""
    counts = Counter(part for _, part in rows)
    classes = len({image.class_name for image, _ in rows})
    remarks: list[str] = []
    if classes != table.n_classes:
        remarks.append(f"{classes} classes have images; {table.n_classes} are published")
    return remarks + [
        f"the official {part} part has {counts[part]:,} images; {count:,} are published"
        for part, count in table.parts.items()
        if counts[part] != count
    ]


def _table(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Read the lines of a published CSV file."""
    return (row for _, row in csv_rows(file, columns, "the published file"))
