"""What datasets of image files share: reading files, class names, official split lists."""

import os
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

from PIL import Image
from pydantic import Field

from unseen.data.dataset import Dataset, Index, LabelledImage
from unseen.data.images import is_image_name, open_image
from unseen.errors import DataError, nearest

ClassMapping = Annotated[
    dict[str, str | None] | None,
    Field(
        description="New class names, `{source: class}`. Several sources may become one class, an "
        "empty name leaves a class out, and names that are not mentioned stay as they are."
    ),
]


class FileDataset(Dataset):
    """A dataset of image files; a subclass finds them."""

    @abstractmethod
    def find(self) -> tuple[Index, Path]:
        """The index, and the folder that the images' names are relative to."""

    @cached_property
    def _found(self) -> tuple[Index, Path]:
        return self.find()

    def build_index(self) -> Index:
        return self._found[0]

    def path(self, position: int) -> Path:
        """Where an image lies."""
        return self._found[1] / self.index().names[position]

    def read(self, position: int) -> Image.Image:
        return open_image(self.content(position), self.index().names[position])

    def signature(self, position: int) -> str:
        try:
            state = self.path(position).stat()
        except OSError as error:
            raise self._unreadable(position, error) from error
        return f"{state.st_size} {state.st_mtime_ns}"

    def content(self, position: int) -> bytes:
        try:
            return self.path(position).read_bytes()
        except OSError as error:
            raise self._unreadable(position, error) from error

    def _unreadable(self, position: int, error: OSError) -> DataError:
        return DataError(f"{self.index().names[position]} cannot be read: {error.strerror}")


def existing_folder(root: Path | None, layout: str) -> Path:
    """`root`, if it is a folder; otherwise an error with the layout that was expected."""
    if root is None or not root.is_dir():
        found = "is a file" if root is not None and root.is_file() else "does not exist"
        raise DataError(f"the folder {root} {found}; expected {layout}")
    return root


def first_few(items: Sequence[str], limit: int = 5) -> str:
    """`a, b, c, ... (12 in all)`."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown}, ... ({len(items)} in all)"


def class_names(
    found: Iterable[str], mapping: Mapping[str, str | None] | None, where: str
) -> dict[str, str]:
    """Source name -> class name, without those left out; a mapped name must exist in `where`."""
    sources = sorted(set(found))
    mapping = mapping or {}
    unknown = [f"'{name}'{nearest(name, sources)}" for name in mapping if name not in sources]
    if unknown:
        raise DataError(
            f"data.classes maps names that are not in {where}: {', '.join(unknown)} "
            f"(found: {', '.join(sources)})"
        )
    wanted = {source: mapping.get(source, source) for source in sources}
    return {source: name for source, name in wanted.items() if name}


def missing_classes(index: Index) -> list[str]:
    """A remark for each domain that does not show every class, or has no labels at all."""
    counts = index.count_classes()
    absent = {
        domain: [name for name, count in counts[domain].items() if not count]
        for domain in index.labelled_domains
    }
    remarks = [f"{domain} has no images of: {first_few(a)}" for domain, a in absent.items() if a]
    unlabelled = [domain for domain in index.domains if domain not in absent]
    return remarks + [
        f"{domain} has no labels: it can be the target of setting=adaptation, and nothing is "
        "measured on it"
        for domain in unlabelled
    ]


def check_lists_exist(files: Iterable[Path]) -> None:
    """Raises DataError naming every official list that is missing."""
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise DataError(f"official lists are missing: {first_few(missing)}")


def read_list(file: Path, domain: str) -> list[tuple[LabelledImage, int]]:
    """A domain's official list, lines `domain/class/file label`: images and labels in order. All
    malformed lines are reported at once."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
    listed: list[tuple[LabelledImage, int]] = []
    malformed: list[str] = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        name, _, label = line.rpartition(" ")
        parts = name.split("/")
        if len(parts) == 3 and label.isdigit():
            listed.append((LabelledImage(name, parts[1], parts[0]), int(label)))
        elif line:
            malformed.append(f"line {number}: '{line}'")
    if malformed:
        raise DataError(
            f"{file} has lines that are not 'domain/class/file label': {first_few(malformed)}"
        )
    foreign = [image.name for image, _ in listed if image.domain != domain]
    if foreign:
        raise DataError(f"{file.name} names images of another domain: {first_few(foreign)}")
    return listed


def check_files(
    images: Iterable[LabelledImage], folder: Path, domains: Iterable[str]
) -> tuple[str, ...]:
    """Raises DataError when lists name missing files; remarks on files that no list names."""
    listed = {image.name for image in images}
    on_disk = _image_files(folder, domains)
    missing = sorted(listed - on_disk)
    if missing:
        raise DataError(
            f"the lists name {len(missing):,} of {len(listed):,} files that are not in {folder}: "
            f"{first_few(missing)}; download the dataset again, or set data.root to all of it"
        )
    spare = sorted(on_disk - listed)
    return (f"in no list, and not used: {first_few(spare)}",) if spare else ()


def _image_files(folder: Path, domains: Iterable[str]) -> set[str]:
    """All `domain/class/file` of images on disk, from folder listings alone."""
    found: set[str] = set()
    for domain in domains:
        if (folder / domain).is_dir():
            for class_folder in os.scandir(folder / domain):
                if class_folder.is_dir():
                    prefix = f"{domain}/{class_folder.name}/"
                    names = os.listdir(class_folder.path)  # noqa: PTH208, twice as fast
                    found.update(prefix + name for name in names if is_image_name(name))
    return found
