"""Predictions as text, row by row: any number of them passes through in little memory. No torch."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from unseen.reports.text import csv_cell, one_line

Guess = tuple[str, float]
"""A class and its probability."""


class Row(NamedTuple):
    image: str
    top: Sequence[Guess]
    opinions: Mapping[str, Sequence[Guess]]
    """By training domain; empty where the model has none, or the domain was known."""
    disagreement: float | None

    @property
    def guesses(self) -> list[Guess]:
        """The classes that come first, and the first class in each domain's opinion."""
        return [*self.top, *(opinion[0] for opinion in self.opinions.values())]


class Columns(NamedTuple):
    """What all rows have in common."""

    top: int
    domains: Sequence[str]
    """Those with opinions."""
    image_width: int
    class_width: int
    """Of the longest name, as those of the images."""


def to_csv(rows: Iterable[Row], columns: Columns) -> Iterator[str]:
    """Yields a line for each image."""
    ranks, pair = range(1, columns.top + 1), ("class", "probability")
    top = [f"{what}_{rank}" for rank in ranks for what in pair]
    own = [f"{domain}_{what}" for domain in columns.domains for what in pair]
    yield _csv_line("image", *top, *own, *(["disagreement"] if columns.domains else []))
    for row in rows:
        cells = [cell for name, share in row.guesses for cell in (name, f"{share:.6f}")]
        if row.disagreement is not None:
            cells.append(f"{row.disagreement:.6f}")
        yield _csv_line(row.image, *cells)


def _csv_line(*cells: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(csv_cell, cells))
    return line.getvalue()


def to_json(rows: Iterable[Row], columns: Columns) -> Iterator[str]:
    """Yields one array, an object on each line."""
    separator = "[\n"
    for row in rows:
        content: dict[str, object] = {"image": row.image, "top": _objects(row.top)}
        if row.disagreement is not None:
            content["opinions"] = {name: _objects(top) for name, top in row.opinions.items()}
            content["disagreement"] = round(row.disagreement, 6)
        yield separator + json.dumps(content, ensure_ascii=False)
        separator = ",\n"
    yield "[\n]\n" if separator == "[\n" else "\n]\n"


def _objects(guesses: Sequence[Guess]) -> list[dict[str, object]]:
    return [{"class": name, "probability": round(share, 6)} for name, share in guesses]


def to_table(rows: Iterable[Row], columns: Columns) -> Iterator[str]:
    """Yields aligned columns, for people."""
    first = ["most likely", *(f"then {rank}" for rank in range(2, columns.top + 1))]
    widest = (columns.class_width + len(" 100.0%"), len("most likely"))
    width = max(*widest, *map(cell_len, columns.domains))

    def line(image: str, cells: Sequence[str], last: str) -> str:
        image = one_line(image)
        if cell_len(image) > columns.image_width:
            image = "…" + image[1 - columns.image_width :]
        texts = [set_cell_size(image, columns.image_width)]
        texts += [set_cell_size(one_line(cell), width) for cell in cells]
        return "  ".join([*texts, last]).rstrip() + "\n"

    yield line("image", [*first, *columns.domains], "disagreement" if columns.domains else "")
    for row in rows:
        last = "" if row.disagreement is None else f"{row.disagreement:.3f}"
        yield line(row.image, [f"{name} {share:.1%}" for name, share in row.guesses], last)


FORMATS: dict[str, Callable[[Iterable[Row], Columns], Iterator[str]]] = {
    "table": to_table,
    "csv": to_csv,
    "json": to_json,
}
"""Each gives the text piece by piece, as rows arrive."""
