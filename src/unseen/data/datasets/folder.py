"""Your own pictures: folders root/domain/class/*, or a CSV or JSON-lines file with a line for each
image: path, class, domain[, split].

Pictures in root/domain/*, and domains whose images all have an empty class, have no labels.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from unseen.data.dataset import Dataset, FileDataset
from unseen.data.images import existing_folder, folders_in, images_in, names_below
from unseen.data.index import SPLITS, Index, LabelledImage
from unseen.data.tables import csv_rows, read_text
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

    def new_names(self, sources: Iterable[str], where: Path) -> dict[str, str]:
        """Return the class of each source, without those left out; no label stays no label."""
        known = sorted(set(sources) - {""})
        mapping = self.config.classes or {}
        unknown = [f"'{name}'{nearest(name, known)}" for name in mapping if name not in known]
        if unknown:
            raise DataError(
                f"data.classes maps names that are not in {where}: {', '.join(unknown)} "
                f"(found: {', '.join(known)})"
            )
        wanted = {source: mapping.get(source, source) for source in known}
        return {"": ""} | {source: name for source, name in wanted.items() if name}

    def groups(self, names: Sequence[str], column: Mapping[str, str]) -> tuple[str, ...]:
        """Return the group of each image; one without a group is alone in one of its own name.
        `column` is what a manifest says by name."""
        wanted = self.config.group
        if wanted is None:
            return ()
        if "(?P<" in wanted:
            found = _matched(wanted, names)
        elif wanted.endswith(".csv"):
            rows = csv_rows(Path(wanted).expanduser(), ("path", "group"), "a CSV file path,group")
            found = {row["path"]: row["group"] for _, row in rows}
        else:
            found = column
        if not found.keys() & set(names):
            raise DataError(
                f"data.group={wanted} gives no image a group; expected a column of the manifest, a "
                "pattern with a named group that fits paths such as "
                f"{names[0]}, for example (?P<patient>p[0-9]+), or a CSV file path,group"
            )
        return tuple(found.get(name) or name for name in names)

    def find(self) -> tuple[Index, Path]:
        root = existing_folder(self.root, LAYOUT)
        folders = _class_folders(root)
        sources = {source for names in folders.values() for source in names}
        new_names = self.new_names(sources, root)
        labelled = [
            LabelledImage(f"{domain}/{source}/{file}", new_names[source], domain)
            for domain, names in folders.items()
            for source in names
            if source in new_names
            for file in names_below(root / domain / source)
        ]
        unlabelled = [
            LabelledImage(f"{domain}/{file}", "", domain)
            for domain, names in folders.items()
            if not names
            for file in images_in(root / domain)
        ]
        images = labelled + unlabelled
        empty = sorted(folders.keys() - {image.domain for image in images})
        if empty:
            raise DataError(
                f"domains without images of any class in {root}: {', '.join(empty)}; "
                f"expected {LAYOUT}. Fill or remove these folders"
            )
        groups = self.groups([image.name for image in images], {})
        index = replace(self.index_of(images, drawn_by=groups), groups=groups)
        remarks = index.missing_classes()
        unused = sorted(set(new_names.values()) - {"", *index.classes})
        if unused:
            remarks.insert(0, f"class folders without images in any domain: {first_few(unused)}")
        strays = [f"{d}/{file}" for d in index.labelled_domains for file in images_in(root / d)]
        if strays:
            remarks.insert(0, f"in no class folder, and not used: {first_few(strays)}")
        return replace(index, remarks=tuple(remarks)), root


def _matched(pattern: str, names: Iterable[str]) -> dict[str, str]:
    """Return what the named groups of a pattern match in each name, where it does."""
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"data.group={pattern} is not a regular expression: {error}") from error
    matches = {name: match for name in names if (match := search(name))}
    return {name: "/".join(map(str, m.groupdict().values())) for name, m in matches.items()}


def _class_folders(root: Path) -> dict[str, list[str]]:
    """List the class folders of each domain; a root without the domain level is recognised here."""
    folders = {domain: folders_in(root / domain) for domain in folders_in(root)}
    if not folders:
        raise DataError(f"{root} holds no folders; expected {LAYOUT}")
    if not any(folders.values()):
        direct = [domain for domain in folders if images_in(root / domain)]
        problem = f"images lie directly in {first_few(direct)}" if direct else "no class folders"
        raise DataError(
            f"{root} has no domain level ({problem}): it looks like root/class/*; expected "
            f"{LAYOUT}. With a single domain, put these folders into one: root/DOMAIN/class/*"
        )
    return folders


class Manifest(Folder):
    """The root is the manifest itself. Rows without a split are split by name.

    A kind of split that the manifest gives (test, validation) is not also drawn by name.
    """

    def find(self) -> tuple[Index, Path]:
        file = self.root
        if file is None or not file.is_file():
            problem = "is a folder" if file is not None and file.is_dir() else "does not exist"
            raise DataError(f"the manifest {file} {problem}; expected {LISTED}")
        listed, column = _checked_images(file, self.config.group or "")
        new_names = self.new_names({image.class_name for image in listed}, file)
        images = [
            image._replace(class_name=new_names[image.class_name])
            for image in listed
            if image.class_name in new_names
        ]
        if not images:
            raise DataError(f"{file} lists no images; expected {LISTED}")
        groups = self.groups([image.name for image in images], column)
        index = self.index_of(images, drawn_by=groups)
        remarks = tuple(index.missing_classes())
        return replace(index, groups=groups, remarks=remarks), file.parent


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
        problem = ""
        if fields.keys() == {"problem"}:
            problem = fields["problem"]
        elif absent:
            problem = f"no {', '.join(absent)}"
        elif split and split not in SPLITS:
            hint = nearest(split, SPLITS) or "; expected train, val or test"
            problem = f"unknown split '{split}'{hint}"
        elif path in first_line:
            problem = f"{path} is on line {first_line[path]} already"
        elif not (file.parent / path).is_file():
            problem = f"no file {file.parent / path}"
        else:
            first_line[path] = number
            class_name, domain = fields.get("class", ""), fields["domain"]
            images.append(LabelledImage(path, class_name, domain, SPLITS.get(split)))
            groups |= {path: fields[group]} if fields.get(group) else {}
        if problem:
            problems.append(f"line {number}: {problem}")
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
