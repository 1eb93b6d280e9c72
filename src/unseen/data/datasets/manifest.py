"""Your own pictures, listed in a CSV or JSON-lines file: path, class, domain[, split].

A domain whose images all have an empty class has no labels.
"""

import csv
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unseen.data.dataset import Dataset, Index, LabelledImage, Split, held_out
from unseen.data.files import ClassMapping, FileDataset, class_names, missing_classes
from unseen.errors import DataError, nearest

COLUMNS = ("path", "class", "domain")
SPLITS = {
    "train": Split.TRAIN,
    "val": Split.VALIDATION,
    "validation": Split.VALIDATION,
    "test": Split.TEST,
}
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
LAYOUT = "a CSV file with the header path,class,domain[,split], or JSON lines with these keys"


class Manifest(FileDataset):
    """The root is the manifest itself. Rows without a split are split by name.

    A kind of split that the manifest gives (test, validation) is not also drawn by name.
    """

    class Config(Dataset.Config):
        classes: ClassMapping = None

    config: Config

    def find(self) -> tuple[Index, Path]:
        file = self.root
        if file is None or not file.is_file():
            found = "is a folder" if file is not None and file.is_dir() else "does not exist"
            raise DataError(f"the manifest {file} {found}; expected {LAYOUT}")
        given = _checked_images(file)
        sources = {image.class_name for image in given} - {""}
        renamed = {"": ""} | class_names(sources, self.config.classes, str(file))
        given = {
            image._replace(class_name=renamed[image.class_name]): split
            for image, split in given.items()
            if image.class_name in renamed
        }
        if not given:
            raise DataError(f"{file} lists no images; expected {LAYOUT}")
        official = Split.TEST in given.values()
        index = Index.of(list(given), self._splits(given), official_test=official)
        return replace(index, remarks=tuple(missing_classes(index))), file.parent

    def _splits(self, given: Mapping[LabelledImage, Split | None]) -> np.ndarray:
        kinds = set(given.values())
        drawn = held_out(
            [image.name for image in given],
            0 if Split.VALIDATION in kinds else self.config.validation_share,
            0 if Split.TEST in kinds else self.config.test_share,
            self.config.split_seed,
        )
        pairs = zip(given.values(), drawn, strict=True)
        return np.array([draw if split is None else split for split, draw in pairs])


def _checked_images(file: Path) -> dict[LabelledImage, Split | None]:
    """All images, by their path as written (but tidied), with the split that the manifest gives.
    All mistakes are reported at once, with their lines."""
    images: dict[LabelledImage, Split | None] = {}
    problems: list[str] = []
    first_line: dict[str, int] = {}
    for number, fields in _lines(file):
        path = posixpath.normpath(_text(fields, "path").replace("\\", "/"))
        absent = [column for column in ("path", "domain") if not _text(fields, column)]
        split = _text(fields, "split").lower()
        if "problem" in fields and len(fields) == 1:
            problems.append(f"line {number}: {fields['problem']}")
        elif absent:
            problems.append(f"line {number}: no {', '.join(absent)}")
        elif split and split not in SPLITS:
            hint = nearest(split, SPLITS) or "; expected train, val or test"
            problems.append(f"line {number}: unknown split '{split}'{hint}")
        elif path in first_line:
            problems.append(f"line {number}: {path} is on line {first_line[path]} already")
        elif not (file.parent / path).is_file():
            problems.append(f"line {number}: no file {file.parent / path}")
        else:
            first_line[path] = number
            image = LabelledImage(path, _text(fields, "class"), _text(fields, "domain"))
            images[image] = SPLITS.get(split)
    problems += _missing_labels(images, first_line)
    if problems:
        more = f"\n  ... ({len(problems)} in all)" if len(problems) > 10 else ""
        listed = "".join(f"\n  {problem}" for problem in problems[:10])
        raise DataError(f"{file} cannot be used; expected {LAYOUT}:{listed}{more}")
    return images


def _missing_labels(images: Iterable[LabelledImage], lines: Mapping[str, int]) -> list[str]:
    """Images without a class, in domains where others have one."""
    labelled = {image.domain for image in images if image.class_name}
    return [
        f"line {lines[image.name]}: no class, unlike other images of {image.domain}"
        for image in images
        if not image.class_name and image.domain in labelled
    ]


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return "" if value is None else str(value).strip()


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and fields of each row, from either format."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as UTF-8 text: {error}") from error
    lines = text.splitlines()
    return _json_lines(lines) if file.suffix.lower() in JSON_SUFFIXES else _csv_lines(file, lines)


def _csv_lines(file: Path, lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, skipinitialspace=True)
    header = [name.strip() for name in reader.fieldnames or ()]
    absent = [column for column in COLUMNS if column not in header]
    if absent:
        raise DataError(
            f"{file} has no column {', '.join(absent)} in its header "
            f"'{','.join(header)}'; expected {LAYOUT}"
        )
    reader.fieldnames = header
    for fields in reader:
        yield reader.line_num, fields


def _json_lines(lines: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            fields = {"problem": f"not JSON ({error.msg})"}
        yield number, fields if isinstance(fields, dict) else {"problem": "not a JSON object"}
