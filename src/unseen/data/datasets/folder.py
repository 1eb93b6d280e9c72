"""Your own pictures: folders root/domain/class/*, or a CSV or JSON-lines file with a line for each
image: path, class, domain[, split].

Pictures in root/domain/*, and domains whose images all have an empty class, have no labels.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from unseen.data.dataset import Dataset, FileDataset
from unseen.data.images import (
    csv_rows,
    existing_folder,
    folders_in,
    images_in,
    names_below,
    read_text,
)
from unseen.data.index import SPLITS, Index, LabelledImage
from unseen.errors import DataError, first_few, nearest
from unseen.settings.experiment import DataSettings, as_list

LAYOUT = "root/domain/class/*, for example images/photo/dog/rex.jpg"
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
LISTED = "a CSV file with the header path,class,domain[,split], or JSON lines with these keys"


class Folder(FileDataset):
    """Domains are the folders in root, classes the folders in those; files may lie deeper.

    A domain with pictures and no folders in it has no labels.
    """

    class Config(Dataset.Config):
        classes: dict[str, str | None] | None = None
        """New class names, `{source: class}`; several may become one, an empty name leaves a class
        out."""
        window: Annotated[tuple[float, float] | None, BeforeValidator(as_list)] = None
        """Values that become black and white in images of more than 8 bits, such as `0,4095`;
        empty: the full range of the type, or a DICOM file's own."""

        group: str | None = None
        """Images of one group (a patient, say) stay in one split, and out of training if one of
        them is in the unseen domain. A column of the manifest, a pattern in the path with named
        groups, such as `(?P<patient>p[0-9]+)`, or a CSV file `path,group`."""

    config: Config

    def __init__(self, config: DataSettings, root: Path | None) -> None:
        super().__init__(config, root)
        self.window = self.config.window

    def labelled(
        self,
        images: Sequence[LabelledImage],
        sources: set[str],
        column: Mapping[str, str],
        expected: str,
    ) -> Index:
        """Index images under the classes that the settings give to their `sources`, in groups.
        `column` is what a manifest says by name."""
        mapping, known = self.config.classes or {}, sorted(sources - {""})
        if unknown := [f"'{name}'{nearest(name, known)}" for name in mapping if name not in known]:
            raise DataError(
                f"data.classes maps names that are not in {self.root}: {', '.join(unknown)} "
                f"(found: {', '.join(known)})"
            )
        new = {"": ""} | {name: mapping.get(name, name) or "" for name in known}
        if mapping:
            images = [
                image._replace(class_name=new[image.class_name])
                for image in images
                if new[image.class_name] or not image.class_name
            ]
        if not images:
            raise DataError(f"{self.root} lists no images; expected {expected}")
        groups = self._groups([image.name for image in images], column)
        index = replace(self.index_of(images, drawn_by=groups), groups=groups)
        unused = sorted({*new.values()}.difference(index.classes, [""]))
        remarks = [f"classes without images in any domain: {first_few(unused)}"] if unused else []
        return replace(index, remarks=(*remarks, *index.missing_classes()))

    def _groups(self, names: Sequence[str], column: Mapping[str, str]) -> tuple[str, ...]:
        """Return the group of each image; one without a group is alone in one of its own name."""
        wanted, found = self.config.group, dict(column)
        if wanted is None:
            return ()
        if "(?P<" in wanted:
            try:
                matches = {name: re.search(wanted, name) for name in names}
            except re.error as error:
                raise DataError(f"data.group={wanted} is no regular expression: {error}") from error
            found = {n: "/".join(map(str, m.groupdict().values())) for n, m in matches.items() if m}
        elif wanted.endswith(".csv"):
            rows = csv_rows(Path(wanted).expanduser(), ("path", "group"), "a CSV file path,group")
            found = {row["path"]: row["group"] for _, row in rows}
        if found.keys().isdisjoint(names):
            raise DataError(
                f"data.group={wanted} gives no image a group; expected a column of the manifest, a "
                "pattern with a named group that fits paths such as "
                f"{names[0]}, for example (?P<patient>p[0-9]+), or a CSV file path,group"
            )
        return tuple(found.get(name) or name for name in names)

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        folders = {domain: folders_in(root / domain) for domain in folders_in(root)}
        if not any(folders.values()):
            direct = [domain for domain in folders if images_in(root / domain)]
            problem = (
                f"images lie directly in {first_few(direct)}" if direct else "no class folders"
            )
            problem = f"has no domain level ({problem}): it looks like root/class/*"
            raise DataError(
                f"{root} {problem if folders else 'holds no folders'}; expected {LAYOUT}. With a "
                "single domain, put these folders into one: root/DOMAIN/class/*"
            )
        images = [
            LabelledImage(f"{domain}/{place}{file}", source, domain)
            for domain, sources in folders.items()
            for source, place in [(name, f"{name}/") for name in sources] or [("", "")]
            for file in (
                names_below(root / domain / source) if source else images_in(root / domain)
            )
        ]
        index = self.labelled(
            images, {source for s in folders.values() for source in s}, {}, LAYOUT
        )
        if empty := sorted(folders.keys() - {*index.domains}):
            raise DataError(
                f"domains without images of any class in {root}: {', '.join(empty)}; "
                f"expected {LAYOUT}. Fill or remove these folders"
            )
        strays = [f"{d}/{file}" for d in index.labelled_domains for file in images_in(root / d)]
        remarks = [f"in no class folder, and not used: {first_few(strays)}"] if strays else []
        return replace(index, remarks=(*remarks, *index.remarks)), root


class Manifest(Folder):
    """The root is the manifest itself. Rows without a split are split by name.

    A kind of split that the manifest gives (test, validation) is not also drawn by name.
    """

    def find(self) -> tuple[Index, Path]:
        file = self.root
        if file is None or not file.is_file():
            problem = "is a folder" if file is not None and file.is_dir() else "does not exist"
            raise DataError(f"the manifest {file} {problem}; expected {LISTED}")
        images, column = _checked_images(file, self.config.group or "")
        sources = {image.class_name for image in images}
        return self.labelled(images, sources, column, LISTED), file.parent


def _checked_images(file: Path, group: str) -> tuple[list[LabelledImage], dict[str, str]]:
    """Return all images, by their path as written (but tidied), with the split that is given, and
    what the column `group` says of each path. All mistakes are reported at once, with their lines.
    """
    images: list[LabelledImage] = []
    groups: dict[str, str] = {}
    problems: list[str] = []
    first_line: dict[str, int] = {}
    for number, row in _rows(file):
        fields = {key: "" if value is None else str(value).strip() for key, value in row.items()}
        path = posixpath.normpath(fields.get("path", "").replace("\\", "/"))
        absent = [column for column in ("path", "domain") if not fields.get(column)]
        split = fields.get("split", "").lower()
        if fields.keys() == {"problem"}:
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
            class_name, domain = fields.get("class", ""), fields["domain"]
            images.append(LabelledImage(path, class_name, domain, SPLITS.get(split)))
            groups |= {path: fields[group]} if fields.get(group) else {}
    labelled = {image.domain for image in images if image.class_name}
    problems += [
        f"line {first_line[image.name]}: no class, unlike other images of {image.domain}"
        for image in images
        if not image.class_name and image.domain in labelled
    ]
    if problems:
        more = f"\n  ... ({len(problems)} in all)" if len(problems) > 10 else ""
        listed = "".join(f"\n  {problem}" for problem in problems[:10])
        raise DataError(f"{file} cannot be used; expected {LISTED}:{listed}{more}")
    return images, groups


def _rows(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the line number and the fields of each row, from either format."""
    if file.suffix.lower() not in JSON_SUFFIXES:
        yield from csv_rows(file, ("path", "class", "domain"), LISTED)
        return
    for number, line in enumerate(read_text(file, LISTED).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            fields = {"problem": f"not JSON ({error.msg})"}
        yield number, fields if isinstance(fields, dict) else {"problem": "not a JSON object"}
