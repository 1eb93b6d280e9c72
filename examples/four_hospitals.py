"""Images of four hospitals, made of handwritten digits: three have labels, the fourth has none yet.

    python examples/four_hospitals.py scans

writes scans/north/3/0001.png and so on for the hospitals north, south and east, scans/west/0001.png
for the fourth one, and scans/west_labels.csv: what an expert would say of its images later.
"""

import argparse
import csv
from pathlib import Path

from unseen.data.dataset import open_dataset
from unseen.settings.experiment import DataSettings

HOSPITALS = {"plain": "north", "coloured": "south", "outlines": "east", "blended": "west"}
"""By the style of the digits that stands for each of them."""
UNLABELLED = "west"


def write_scans(root: Path) -> None:
    digits = open_dataset(DataSettings(name="digits"))
    index = digits.index()
    said = []
    for position in range(len(index)):
        hospital = HOSPITALS[index.domains[index.domain_of[position]]]
        label = index.classes[index.labels[position]]
        if hospital == UNLABELLED:
            file = root / hospital / f"{position:04d}.png"
            said.append((file.name, label))
        else:
            file = root / hospital / label / f"{position:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        digits.read(position).save(file)
    with (root / f"{UNLABELLED}_labels.csv").open("w", newline="", encoding="utf-8") as labels:
        csv.writer(labels).writerows([("path", "class"), *said])
    print(f"{root}: {len(index) - len(said):,} images with labels, {len(said)} of west without")


arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
arguments.add_argument("root", type=Path, nargs="?", default=Path("scans"))
write_scans(arguments.parse_args().root)
