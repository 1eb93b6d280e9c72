"""Formats, named arrays in a file, and digests by which damage is noticed. No torch."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from unseen.atomic import atomic_file, read_object, write_json
from unseen.errors import UnseenError

FORMAT = 3
"""Of run folders, lists of runs, the choices of a sweep, saved models and exported files. It is
raised by one with every change that older code, or newer code, would misread. Prepared images have
a version of their own (`data.cache.PREPARATION_VERSION`): they are made again by themselves."""


class FormatError(UnseenError):
    """Written by another version of unseen."""


def check_format(content: Any, path: Path, remedy: str) -> None:
    """Raises unless `content`, read from `path`, says that it has today's format.

    What says nothing is of the first format, which did not always name itself.
    """
    if not isinstance(content, dict):
        raise UnseenError(f"{path} is damaged: it should hold names and values")
    found = cast(dict[str, Any], content).get("format", 1)
    if found == FORMAT:
        return
    if isinstance(found, int) and found > FORMAT:
        remedy = "install a newer version of unseen to read it"
    raise FormatError(
        f"{path} was written in format {found}, and this version of unseen reads format {FORMAT}; "
        f"{remedy}"
    )


Array = np.ndarray[Any, np.dtype[Any]]


def write_arrays(path: Path, arrays: Mapping[str, Array], *, compress: bool = False) -> None:
    """Writes arrays; equal ones make equal files."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(array_bytes(arrays, compress=compress))


def array_bytes(arrays: Mapping[str, Array], *, compress: bool = False) -> bytes:
    """Returns the content of the file that `write_arrays` makes."""
    buffer = io.BytesIO()
    named: dict[str, Any] = {name: np.ascontiguousarray(each) for name, each in arrays.items()}
    (np.savez_compressed if compress else np.savez)(buffer, **named)
    return buffer.getvalue()


_DAMAGED = (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What reading a file of arrays raises where it is no such file."""


def read_array(path: Path, name: str) -> Array:
    """Returns one of the arrays; the others are not loaded."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays[name]
    except FileNotFoundError as error:
        raise UnseenError(f"there is no {path}") from error
    except (KeyError, *_DAMAGED) as error:
        raise UnseenError(f"{path} is damaged: array '{name}' cannot be read ({error})") from error


def read_arrays_if_whole(path: Path) -> dict[str, Array]:
    """Returns all arrays, or none where the file is missing or damaged: figures can do without."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except _DAMAGED:
        return {}


DIGESTS = "digests.json"


def digest_of(file: Path) -> str:
    """Returns the SHA-256 of a file's content."""
    found = hashlib.sha256()
    with file.open("rb", buffering=0) as opened:
        while block := opened.read(2**20):  # most files are small, and file_digest clears 256 KB
            found.update(block)
    return found.hexdigest()


def write_digests(folder: Path, files: Mapping[Path, Path]) -> None:
    """Writes what files of a folder hold, or will hold: for each the one that has its content."""
    contents = sorted(files.items())
    digests = {f.relative_to(folder).as_posix(): digest_of(content) for f, content in contents}
    write_json(folder / DIGESTS, digests)


@lru_cache(maxsize=1)
def _digests(file: Path, changed: int) -> dict[str, Any]:
    """Returns the digests as they were when their file last changed: several files of a folder are
    read one after the other."""
    return read_object(file)


def checked(folder: Path, file: Path, remedy: str, content: bytes | None = None) -> Path:
    """Returns the file; raises where it does not hold what was written: its `content`, if it has
    been read. A file that is missing, or of which there is no digest, is left to its reader."""
    digests = folder / DIGESTS
    try:
        written = _digests(digests, digests.stat().st_mtime_ns)
        known = written.get(file.relative_to(folder).as_posix())
        if known is None:
            return file
        found = digest_of(file) if content is None else hashlib.sha256(content).hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return file
    if found != known:
        raise UnseenError(
            f"{file} is damaged: it does not hold what was written ({DIGESTS} knows its "
            f"content); {remedy}"
        )
    return file
