"""Predictions as text, row by row: any number of them passes through in little memory. No torch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len, set_cell_size

Guess = tuple[str, float]
"""A class and its probability."""


class Row(NamedTuple):
    image: str
    top: Sequence[Guess]
    opinions: Mapping[str, Sequence[Guess]]
    """By training domain; empty where the model has none, or the domain was known."""
    disagreement: float | None


class Columns(NamedTuple):
    """What all rows have in common."""

    top: int
    domains: Sequence[str]
    """Those with opinions."""
    image_width: int
    class_width: int
    """Of the longest name, as those of the images."""


class Writer(ABC):
    def __init__(self, file: TextIO, columns: Columns) -> None:
        self._file = file
        self._columns = columns

    @abstractmethod
    def begin(self) -> None:
        """Before the first row."""

    @abstractmethod
    def write(self, row: Row) -> None:
        """One row, at once."""

    def end(self) -> None:
        """After the last row."""
        self._file.flush()


class CsvWriter(Writer):
    """One line an image; of each domain's opinion the first class."""

    def begin(self) -> None:
        self._csv = csv.writer(self._file, lineterminator="\n")
        ranks = range(1, self._columns.top + 1)
        top = [name for rank in ranks for name in (f"class_{rank}", f"probability_{rank}")]
        domains = self._columns.domains
        own = [name for d in domains for name in (f"{d}_class", f"{d}_probability")]
        self._csv.writerow(["image", *top, *own, *(["disagreement"] if domains else [])])

    def write(self, row: Row) -> None:
        guesses = [*row.top, *(opinion[0] for opinion in row.opinions.values())]
        cells = [cell for name, share in guesses for cell in (name, f"{share:.6f}")]
        if row.disagreement is not None:
            cells.append(f"{row.disagreement:.6f}")
        self._csv.writerow([row.image, *cells])


class JsonWriter(Writer):
    """One array, an object a line, written as it grows."""

    def begin(self) -> None:
        self._file.write("[")
        self._separator = "\n"

    def write(self, row: Row) -> None:
        content: dict[str, object] = {"image": row.image, "top": _objects(row.top)}
        if row.disagreement is not None:
            content["opinions"] = {name: _objects(top) for name, top in row.opinions.items()}
            content["disagreement"] = round(row.disagreement, 6)
        self._file.write(self._separator + json.dumps(content, ensure_ascii=False))
        self._separator = ",\n"

    def end(self) -> None:
        self._file.write("\n]\n")
        super().end()


class TableWriter(Writer):
    """For people: aligned columns; of each domain's opinion the first class."""

    def begin(self) -> None:
        guesses = ["most likely", *(f"then {rank}" for rank in range(2, self._columns.top + 1))]
        domains = self._columns.domains
        self._line("image", [*guesses, *domains], "disagreement" if domains else "")

    def write(self, row: Row) -> None:
        guesses = [*row.top, *(opinion[0] for opinion in row.opinions.values())]
        cells = [f"{name} {share:.1%}" for name, share in guesses]
        last = "" if row.disagreement is None else f"{row.disagreement:.3f}"
        self._line(row.image, cells, last)

    def _line(self, image: str, cells: Sequence[str], last: str) -> None:
        width = self._columns.image_width
        shown = image if cell_len(image) <= width else "…" + image[1 - width :]
        wide = max(
            self._columns.class_width + len(" 100.0%"),
            len("most likely"),
            *map(cell_len, self._columns.domains),
        )
        columns = [set_cell_size(shown, width), *(set_cell_size(cell, wide) for cell in cells)]
        self._file.write("  ".join([*columns, last]).rstrip() + "\n")


WRITERS: dict[str, type[Writer]] = {"table": TableWriter, "csv": CsvWriter, "json": JsonWriter}


def _objects(guesses: Sequence[Guess]) -> list[dict[str, object]]:
    return [{"class": name, "probability": round(share, 6)} for name, share in guesses]
