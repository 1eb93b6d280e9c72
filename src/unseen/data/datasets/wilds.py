"""Camelyon17, iWildCam and FMoW as WILDS publishes them: images and a table (Koh et al. 2021)."""

import csv
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from unseen.data.dataset import Dataset, FileDataset, Index, LabelledImage, Split
from unseen.data.images import existing_folder
from unseen.errors import DataError, first_few, nearest

IN_DOMAIN = {"train": Split.TRAIN, "id_val": Split.VALIDATION, "id_test": Split.TEST}

SPLITS = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.TEST}
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


class Row(NamedTuple):
    """An image in the table."""

    file: str
    class_name: str
    place: str
    """Hospital, camera or region."""
    part: str
    """train, val or test of the official split; empty: in none of them"""
    split: Split | None
    """Within its place, as published; None where it is to be drawn."""


class Wilds(FileDataset):
    """A subclass reads its table."""

    class Config(Dataset.Config):
        domains: Literal["places", "parts"] = "places"
        """What a domain is: a place (hospital, camera, region of the world), or a part of the
        official split: `train` (with its held-out images), `val` and `test`."""

    table: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    classes: ClassVar[tuple[str, ...]] = ()
    """Empty: those that the table names, so many as are published."""
    n_classes: ClassVar[int]
    published: ClassVar[Mapping[str, int]]
    """Images in each part of the official split."""

    config: Config

    @abstractmethod
    def rows(self, folder: Path) -> Iterator[Row]:
        """Read the images in the table."""

    def find(self) -> tuple[Index, Path]:
        layout = f"the unpacked folder of WILDS with {self.table}"
        root = existing_folder(self.root, layout)
        places = (root, *sorted(root.iterdir()))
        folder = next((place for place in places if (place / self.table).is_file()), None)
        if folder is None:
            raise DataError(f"no {self.table} in {root} or a folder in it; expected {layout}")
        by_part = self.config.domains == "parts"
        rows = [row for row in self.rows(folder) if row.part or not by_part]
        self._check(folder, rows)
        images = [
            LabelledImage(row.file, row.class_name, row.part if by_part else row.place)
            for row in rows
        ]
        drawn = self.draw_splits(row.file for row in rows)
        splits = [
            draw if row.split is None or (by_part and row.part != "train") else row.split
            for row, draw in zip(rows, drawn, strict=True)
        ]
        classes, remarks = self.classes or None, self._differences(rows)
        return Index.of(images, np.array(splits), classes, remarks=remarks), folder

    def _check(self, folder: Path, rows: list[Row]) -> None:
        if not rows:
            raise DataError(f"{folder / self.table} lists no images; download it again")
        known = set(self.classes)
        strange = sorted({row.class_name for row in rows} - known) if known else []
        if strange:
            raise DataError(
                f"{folder / self.table} names classes that are not published: "
                + ", ".join(f"'{name}'{nearest(name, known)}" for name in strange[:5])
            )
        there = {
            f"{place}/{file}"
            for place in {row.file.rpartition("/")[0] for row in rows}
            if (folder / place).is_dir()
            for file in os.listdir(folder / place)  # noqa: PTH208, twice as fast
        }
        missing = [row.file for row in rows if row.file not in there]
        if missing:
            raise DataError(
                f"{len(missing):,} of {len(rows):,} images in {self.table} are not in {folder}: "
                f"{first_few(missing)}; unpack the archive again"
            )

    def _differences(self, rows: list[Row]) -> list[str]:
        """Return a remark for every number that is not the published one."""
        counts = Counter(row.part for row in rows)
        classes = len({row.class_name for row in rows})
        remarks: list[str] = []
        if classes != self.n_classes:
            remarks.append(f"{classes} classes have images; {self.n_classes} are published")
        return remarks + [
            f"the official {part} part has {counts[part]:,} images; {count:,} are published"
            for part, count in self.published.items()
            if counts[part] != count
        ]


class Camelyon17(Wilds):
    """Tissue with and without a tumour, from five hospitals; official test: hospital_2."""

    folder_name = "camelyon17_v1.0"
    table = "metadata.csv"
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
    classes = ("normal", "tumor")
    n_classes = 2
    published: ClassVar = {"train": 335_996, "val": 34_904, "test": 85_054}

    def rows(self, folder: Path) -> Iterator[Row]:
        names = {"0": "normal", "1": "tumor"}
        for line in _table(folder / self.table, self.columns):
            node = f"patient_{line['patient']}_node_{line['node']}"
            file = f"patches/{node}/patch_{node}_x_{line['x_coord']}_y_{line['y_coord']}.png"
            class_name = names.get(line["tumor"], line["tumor"])
            part = {"1": "val", "2": "test"}.get(line["center"], "train")
            split = Split.VALIDATION if line["split"] == "1" else Split.TRAIN
            yield Row(file, class_name, f"hospital_{line['center']}", part, split)


class IWildCam(Wilds):
    """Animals by camera traps, 323 places; classes are numbers unless categories.csv is there."""

    folder_name = "iwildcam_v2.0"
    table = "metadata.csv"
    columns = ("split", "location_remapped", "filename", "y")
    n_classes = 182
    published: ClassVar = {"train": 145_277, "val": 14_961, "test": 42_791}

    def rows(self, folder: Path) -> Iterator[Row]:
        categories = folder / "categories.csv"
        lines = _table(categories, ("y", "name")) if categories.is_file() else ()
        names = {line["y"]: line["name"] for line in lines}
        for line in _table(folder / self.table, self.columns):
            split = IN_DOMAIN.get(line["split"])
            part = line["split"] if split is None else "train"
            place = f"camera_{int(line['location_remapped']):03d}"
            class_name = names.get(line["y"]) or f"animal_{int(line['y']):03d}"
            yield Row(f"train/{line['filename']}", class_name, place, part, split)


class FMoW(Wilds):
    """Land use from satellites, by region of the world; the official split is by year."""

    folder_name = "fmow_v1.1"
    table = "rgb_metadata.csv"
    columns = ("split", "category", "country_code", "timestamp")
    classes = tuple(LAND_USE.split())
    n_classes = 62
    published: ClassVar = {"train": 99_673, "val": 19_915, "test": 22_108}

    def rows(self, folder: Path) -> Iterator[Row]:
        countries = _table(folder / "country_code_mapping.csv", ("alpha-3", "region"))
        regions = {line["alpha-3"]: line["region"] for line in countries}
        for number, line in enumerate(_table(folder / self.table, self.columns)):
            if line["split"] == "seq":  # kept back by the publishers
                continue
            split, year = line["split"], int(line["timestamp"][:4])
            part = "train" if year < 2013 else "val" if year < 2016 else "test"
            if part not in ("train", split):
                part = ""
            region = regions.get(line["country_code"]) or "Other"
            file = f"images/rgb_img_{number}.png"
            yield Row(file, line["category"], region, part, SPLITS.get(split))


def _table(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Read the lines of a CSV file that has at least these columns."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            there = reader.fieldnames or ()
            absent = [column for column in columns if column not in there]
            if absent:
                raise DataError(
                    f"{file} has no column {', '.join(absent)} (found: {', '.join(there)}); "
                    "it is another file than the published"
                )
            yield from reader
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
