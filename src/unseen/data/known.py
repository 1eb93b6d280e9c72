"""What is known of a dataset since the last look at it, kept in the cache: its index, which is used
again until a folder or a list of the dataset changes, and a digest of each image."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from unseen.atomic import atomic_file
from unseen.data.cache import cache_folder
from unseen.data.images import PACKAGES, is_hidden, is_installed
from unseen.data.index import Index

TEXTS, ARRAYS = ("names", "groups"), ("labels", "domain_of", "splits")
ABOUT = ("classes", "domains", "official_test", "remarks", "other_classes")
MOST_WATCHED = 50_000
"""Folders and lists beyond which an index is made anew every time."""
JUST_NOW = 2 * 10**9
"""Nanoseconds in which a folder may change once more without another time."""

Watched = dict[str, list[int]]
"""The time and the size of each folder and of each file that is no image."""


def digest(texts: Iterable[str]) -> str:
    """Return the sha256 of a list of texts, each kept apart from the next."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogateescape")
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


def code_state(kind: type) -> str | None:
    """Return a text that changes when the code of a class changes, or what it can read; None where
    it is in no file."""
    files = [getattr(sys.modules.get(each.__module__), "__file__", None) for each in kind.__mro__]
    if kind.__module__ == "__main__" or not files[0]:
        return None
    states = [_state(file) for file in dict.fromkeys(files) if file]
    return f"{kind.__module__}:{kind.__qualname__} {states} {[*map(is_installed, PACKAGES)]}"


def watch(root: Path, folder: Path, names: Iterable[str]) -> Watched:
    """Look at the folders of a dataset, and at all files in it that are none of its images; return
    nothing where that cannot tell whether an image was added or removed."""
    base, images = os.fspath(folder), set(names)
    paths = {os.path.dirname(os.path.join(base, name)) for name in images}  # noqa: PTH118, PTH120
    paths.add(os.fspath(root))
    for place, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not is_hidden(name)]
        if any(os.path.islink(os.path.join(place, name)) for name in folders):  # noqa: PTH114, PTH118
            return {}
        start = os.path.relpath(place, base) + os.sep
        start = start.removeprefix(f".{os.sep}")
        paths.add(place)
        paths.update(
            os.path.join(place, name)  # noqa: PTH118
            for name in files
            if (start + name).replace(os.sep, "/") not in images
        )
        if len(paths) > MOST_WATCHED:
            return {}
    return {path: _state(path) for path in sorted(paths)}


def write_index(key: str, index: Index, folder: Path, watched: Watched, looked_at: int) -> None:
    """Keep an index, and what was looked at when it was made."""
    about = {name: getattr(index, name) for name in ABOUT}
    about |= {"folder": os.fspath(folder), "watched": watched, "looked_at": looked_at}
    arrays = {name: getattr(index, name) for name in ARRAYS}
    arrays |= {name: _to_bytes("\0".join(getattr(index, name))) for name in TEXTS}
    write_arrays(_file(key), {"about": _to_bytes(json.dumps(about)), **arrays})


def read_index(key: str) -> tuple[Index, Path, int] | None:
    """Return a kept index, the folder of its images, and when it was looked at; None where there is
    none, or a folder or a list has changed since then."""
    try:
        with np.load(_file(key), allow_pickle=False) as arrays:
            about: dict[str, Any] = json.loads(arrays["about"].tobytes())
            watched: Watched = about["watched"]
            looked_at: int = about["looked_at"]
            for path, state in watched.items():
                if state != _state(path) or state[0] > looked_at - JUST_NOW:
                    return None
            values: dict[str, Any] = {name: arrays[name] for name in (*ARRAYS, *TEXTS)}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    for name in TEXTS:
        text = values[name].tobytes().decode(errors="surrogateescape")
        values[name] = tuple(text.split("\0")) if text else ()
    for name in ABOUT:
        values[name] = tuple(about[name]) if isinstance(about[name], list) else about[name]
    return Index(**values), Path(about["folder"]), looked_at


def _file(key: str) -> Path:
    return cache_folder() / "indexes" / f"{key[:32]}.npz"


def write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays to a file that appears when it is complete."""
    with atomic_file(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]


def _to_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(errors="surrogateescape"), dtype=np.uint8)


def _state(path: str) -> list[int]:
    try:
        state = os.stat(path)  # noqa: PTH116
    except OSError:
        return [-1, -1]
    return [state.st_mtime_ns, state.st_size]
