"""Your own pictures, listed in a CSV or JSON-lines file: path, class, domain[, split].

A domain whose images all have an empty class has no labels.
"""

import csv
import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.dataset import Index, LabelledImage, Split
from unseen.data.files import OwnImages, missing_classes
from unseen.errors import DataError, nearest

SPLITS = {
    "": None,
    "train": Split.TRAIN,
    "val": Split.VALIDATION,
    "validation": Split.VALIDATION,
    "test": Split.TEST,
}
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
LAYOUT = "a CSV file with the header path,class,domain[,split], or JSON lines with these keys"


class Manifest(OwnImages):
    """The root is the manifest itself. Rows without a split are split by name.

    A kind of split that the manifest gives (test, validation) is not also drawn by name.
    """

    def find(self) -> tuple[Index, Path]:
        file = self.root
        if file is None or not file.is_file():
            problem = "is a folder" if file is not None and file.is_dir() else "does not exist"
            raise DataError(f"the manifest {file} {problem}; expected {LAYOUT}")
        listed = _checked_images(file)
        new_names = self.new_names({image.class_name for image in listed}, file)
        given = {
            image._replace(class_name=new_names[image.class_name]): split
            for image, split in listed.items()
            if image.class_name in new_names
        }
        if not given:
            raise DataError(f"{file} lists no images; expected {LAYOUT}")
        drawn = self.draw_splits((image.name for image in given), set(given.values()))
        pairs = zip(given.values(), drawn, strict=True)
        splits = np.array([draw if split is None else split for split, draw in pairs])
        index = Index.of(list(given), splits, official_test=Split.TEST in given.values())
        return replace(index, remarks=tuple(missing_classes(index))), file.parent


def _checked_images(file: Path) -> dict[LabelledImage, Split | None]:
    """Return all images, by their path as written (but tidied), with the split that is given.
    All mistakes are reported at once, with their lines."""
    images: dict[LabelledImage, Split | None] = {}
    problems: list[str] = []
    first_line: dict[str, int] = {}
    for number, row in _rows(file):
        fields = {key: "" if value is None else str(value).strip() for key, value in row.items()}
        path = posixpath.normpath(fields.get("path", "").replace("\\", "/"))
        absent = [column for column in ("path", "domain") if not fields.get(column)]
        split = fields.get("split", "").lower()
        problem = ""
        if fields.keys() == {"problem"}:
            problem = fields["problem"]
        elif absent:
            problem = f"no {', '.join(absent)}"
        elif split not in SPLITS:
            hint = nearest(split, SPLITS) or "; expected train, val or test"
            problem = f"unknown split '{split}'{hint}"
        elif path in first_line:
            problem = f"{path} is on line {first_line[path]} already"
        elif not (file.parent / path).is_file():
            problem = f"no file {file.parent / path}"
        else:
            first_line[path] = number
            image = LabelledImage(path, fields.get("class", ""), fields["domain"])
            images[image] = SPLITS[split]
        if problem:
            problems.append(f"line {number}: {problem}")
    problems += _missing_labels(images, first_line)
    if problems:
        more = f"\n  ... ({len(problems)} in all)" if len(problems) > 10 else ""
        listed = "".join(f"\n  {problem}" for problem in problems[:10])
        raise DataError(f"{file} cannot be used; expected {LAYOUT}:{listed}{more}")
    return images


def _missing_labels(
    images: Mapping[LabelledImage, Split | None], lines: Mapping[str, int]
) -> list[str]:
    """Name the images without a class, in domains where others have one."""
    labelled = {image.domain for image in images if image.class_name}
    return [
        f"line {lines[image.name]}: no class, unlike other images of {image.domain}"
        for image in images
        if not image.class_name and image.domain in labelled
    ]


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the line number and the fields of each row, from either format."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as UTF-8 text: {error}") from error
    if file.suffix.lower() not in JSON_SUFFIXES:
        yield from _csv_rows(file, lines)
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            fields = {"problem": f"not JSON ({error.msg})"}
        yield number, fields if isinstance(fields, dict) else {"problem": "not a JSON object"}


def _csv_rows(file: Path, lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or ()]
    absent = [column for column in ("path", "class", "domain") if column not in header]
    if absent:
        raise DataError(
            f"{file} has no column {', '.join(absent)} in its header "
            f"'{','.join(header)}'; expected {LAYOUT}"
        )
    reader.fieldnames = header
    for fields in reader:
        yield reader.line_num, fields
