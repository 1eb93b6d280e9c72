"""Official split lists: text files with lines `domain/class/file label`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from unseen.data.files import first_few
from unseen.data.images import is_image_name
from unseen.errors import DataError


class Entry(NamedTuple):
    name: str  # domain/class/file
    class_name: str
    label: int


def read_list(file: Path) -> list[Entry]:
    """The lines of a list in order; all malformed ones are reported at once."""
    entries, malformed = [], []
    for number, line in enumerate(_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        parts = name.split("/")
        if len(parts) != 3 or not label.isdigit():
            malformed.append(f"line {number}: '{line.strip()}'")
        else:
            entries.append(Entry(name, parts[1], int(label)))
    if malformed:
        raise DataError(
            f"{file} has lines that are not 'domain/class/file label': {first_few(malformed)}"
        )
    return entries


def check_lists_exist(files: Iterable[Path]) -> None:
    """Raises DataError naming every list that is missing."""
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise DataError(f"official lists are missing: {first_few(missing)}")


def image_files(base: Path, domains: Iterable[str]) -> set[str]:
    """All `domain/class/file` of images on disk, from folder listings alone."""
    found: set[str] = set()
    for domain in domains:
        if (base / domain).is_dir():
            for class_folder in os.scandir(base / domain):
                if class_folder.is_dir():
                    prefix = f"{domain}/{class_folder.name}/"
                    names = os.listdir(class_folder.path)  # noqa: PTH208, twice as fast
                    found.update(prefix + name for name in names if is_image_name(name))
    return found


def check_files(names: Iterable[str], base: Path, domains: Iterable[str]) -> tuple[str, ...]:
    """Raises DataError when lists name missing files; remarks on files that no list names."""
    listed = set(names)
    on_disk = image_files(base, domains)
    missing = sorted(listed - on_disk)
    if missing:
        raise DataError(
            f"the lists name {len(missing):,} of {len(listed):,} files that are not in {base}: "
            f"{first_few(missing)}; download the dataset again, or point the root at all of it"
        )
    spare = sorted(on_disk - listed)
    return (f"in no list, and not used: {first_few(spare)}",) if spare else ()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
