"""The cache on disk: its folders are complete or absent, and checked whenever they are opened."""

import hashlib
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from unseen.atomic import atomic_file, read_json, write_json
from unseen.errors import DataError, UnseenError

PREPARATION_VERSION = 3
"""Raised whenever the same image would be prepared to other pixels; old caches are then unused."""
MANIFEST = "manifest.json"
BUILDING = ".building-"
GIVEN_UP_AFTER = 24 * 3600  # seconds without a write; for builders on other machines


def cache_folder() -> Path:
    """Return $UNSEEN_CACHE, or ~/.cache/unseen."""
    chosen = os.environ.get("UNSEEN_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "unseen"


def digest(texts: Iterable[str]) -> str:
    """Return the sha256 of a list of texts, each kept apart from the next."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogateescape")
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


def write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays to a file that appears when it is complete."""
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]


def read_if_whole(file: Path) -> dict[str, Any]:
    """Return what a small file in the cache holds; nothing, if it is missing or damaged."""
    try:
        return dict(read_json(file))
    except (UnseenError, OSError, TypeError, ValueError):
        return {}


@contextmanager
def building(parent: Path) -> Generator[Path]:
    """A folder to write to, which `install` gives its name when everything is in it."""
    mark = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    temporary = parent / f"{BUILDING}{mark}"
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def complete(folder: Path, about: dict[str, Any]) -> None:
    """Note what the folder holds, and how many bytes each file has: `read_manifest` checks them."""
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    write_json(folder / MANIFEST, {"version": PREPARATION_VERSION, **about, "bytes": sizes})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a folder was noted to hold; nothing where there is none, or it is incomplete."""
    about = read_if_whole(folder / MANIFEST)
    try:
        sizes = {name: (folder / name).stat().st_size for name in about["bytes"]}
    except (KeyError, OSError):
        return {}
    whole = about.get("version") == PREPARATION_VERSION and sizes == about["bytes"]
    return about if whole else {}


def install(temporary: Path, folder: Path) -> None:
    """Take the final name, unless another process was faster; a damaged folder is removed."""
    while not read_manifest(folder):
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if not read_manifest(folder):
                aside = temporary.with_name(f"{temporary.name}-damaged")
                folder.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Delete what interrupted builders left behind, but nothing that is still being built."""
    for folder in parent.glob(f"{BUILDING}*"):
        builder = re.fullmatch(r"(.+)-(\d+)-[0-9a-f]{8}(-damaged)?", folder.name[len(BUILDING) :])
        dead = False
        with suppress(PermissionError):  # it runs, for somebody else
            try:
                if builder and builder[1] == socket.gethostname():
                    os.kill(int(builder[2]), 0)
                written = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
                dead = time.time() - written > GIVEN_UP_AFTER
            except ProcessLookupError:
                dead = True
            except FileNotFoundError:  # it has just been finished
                continue
        if dead:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing_to(
    folder: Path,
    needed: int,
    what: str = "the cache",
    otherwise: str = "set UNSEEN_CACHE to a folder on a larger disk, or data.cache=encoded",
) -> Generator[None]:
    """Check that so many bytes fit into a folder, and write them inside: a full or read-only disk
    becomes a DataError, which says what to do."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise DataError(
                f"{what} needs {needed / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB left; "
                f"{otherwise}"
            )
        yield
    except OSError as error:
        raise DataError(f"{folder} cannot be written ({error}); {otherwise}") from error
