"""Prepared images on disk: complete or absent, and checked whenever they are opened."""

import io
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from unseen.atomic import read_json, write_json
from unseen.errors import DataError, UnseenError

Form = Literal["decoded", "encoded"]

PREPARATION_VERSION = 2
"""Raised whenever the same image would be prepared to other pixels; old caches are then unused."""
IMAGES = "images.bin"
OFFSETS = "offsets.npy"
MANIFEST = "manifest.json"
BUILDING = ".building-"
GIVEN_UP_AFTER = 24 * 3600  # seconds without a write; for builders on other machines


def cache_folder() -> Path:
    """$UNSEEN_CACHE, or ~/.cache/unseen."""
    chosen = os.environ.get("UNSEEN_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "unseen"


def read_if_whole(file: Path) -> dict[str, Any]:
    """What a small file in the cache holds; nothing, if it is missing or damaged."""
    try:
        return dict(read_json(file))
    except (UnseenError, OSError, TypeError, ValueError):
        return {}


def encode(pixels: np.ndarray, form: Form) -> bytes:
    """One image as it is stored: raw, or as JPEG of hardly visible loss (benchmarks/)."""
    if form == "decoded":
        return pixels.tobytes()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


@dataclass(frozen=True)
class Stored:
    """A cache that was opened and checked."""

    folder: Path
    form: Form
    size: int
    left_out: dict[str, str]
    """Unreadable images by name, with the reason."""
    count: int

    def reader(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function from rows to uint8 [n, size, size, 3]."""
        if self.form == "decoded":
            shape = (self.count, self.size, self.size, 3)
            pixels = np.asarray(np.memmap(self.folder / IMAGES, np.uint8, "r", shape=shape))
            return pixels.__getitem__
        return EncodedReader(self.folder, self.size).read


class EncodedReader:
    """Decodes on all cores; the blob stays on disk and in the system's page cache."""

    def __init__(self, folder: Path, size: int) -> None:
        self.size = size
        self.blob = np.memmap(folder / IMAGES, np.uint8, "r")
        self.offsets = np.load(folder / OFFSETS)

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count())

    def read(self, rows: np.ndarray) -> np.ndarray:
        pixels = np.empty((len(rows), self.size, self.size, 3), dtype=np.uint8)

        def decode(place: int) -> None:
            start, end = self.offsets[rows[place]], self.offsets[rows[place] + 1]
            pixels[place] = np.asarray(Image.open(io.BytesIO(self.blob[start:end].tobytes())))

        list(self.pool.map(decode, range(len(rows))))
        return pixels


class Builder:
    """Collects prepared images in a folder of its own, which enters the cache once complete."""

    def __init__(self, folder: Path, form: Form, size: int) -> None:
        self.final = folder
        self.form: Form = form
        self.size = size
        self.offsets = [0]
        mark = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.folder = folder.parent / f"{BUILDING}{mark}"

    def __enter__(self) -> "Builder":
        self.folder.mkdir(parents=True)
        self._stream = (self.folder / IMAGES).open("wb")
        return self

    def add(self, data: bytes) -> None:
        self._stream.write(data)
        self.offsets.append(self.offsets[-1] + len(data))

    def finish(self, left_out: dict[str, str]) -> None:
        """Everything reaches the disk, then the manifest, then the final name."""
        _sync(self._stream)
        self._stream.close()
        if self.form == "encoded":
            with (self.folder / OFFSETS).open("wb") as stream:
                np.save(stream, np.array(self.offsets, dtype=np.int64))
                _sync(stream)
        manifest = {
            "version": PREPARATION_VERSION,
            "form": self.form,
            "size": self.size,
            "count": len(self.offsets) - 1,
            "left_out": left_out,
            "bytes": {file.name: file.stat().st_size for file in self.folder.iterdir()},
        }
        write_json(self.folder / MANIFEST, manifest)
        self._install()

    def _install(self) -> None:
        """Another process may have been faster (its work is kept), or have left a damaged cache."""
        while not open_stored(self.final):
            try:
                self.folder.rename(self.final)
                return
            except OSError:
                aside = self.folder.with_name(f"{self.folder.name}-damaged")
                if not self.final.exists():
                    raise
                if not open_stored(self.final):
                    self.final.rename(aside)
                    shutil.rmtree(aside, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_stored(folder: Path) -> Stored | None:
    """The cache in this folder; None when there is none, or when it is incomplete."""
    manifest = read_if_whole(folder / MANIFEST)
    try:
        if manifest["version"] != PREPARATION_VERSION:
            return None
        for name, size in manifest["bytes"].items():
            if (folder / name).stat().st_size != size:
                return None
        return Stored(
            folder, manifest["form"], manifest["size"], manifest["left_out"], manifest["count"]
        )
    except (KeyError, OSError):
        return None


def remove_leftovers(parent: Path) -> None:
    """Delete what interrupted builders left behind, but nothing that is still being built."""
    for folder in parent.glob(f"{BUILDING}*"):
        builder = re.fullmatch(r"(.+)-(\d+)-[0-9a-f]{8}(-damaged)?", folder.name[len(BUILDING) :])
        dead = builder and builder[1] == socket.gethostname() and not _is_running(int(builder[2]))
        if dead or _idle(folder) > GIVEN_UP_AFTER:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def writing_to(
    folder: Path, needed: int, otherwise: str = "set data.cache=encoded"
) -> Generator[None]:
    """To write so many bytes there: a full or read-only disk becomes a DataError, which says what
    takes less room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise DataError(
                f"the cache needs {needed / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB "
                f"left; set UNSEEN_CACHE to a folder on a larger disk, or {otherwise}"
            )
        yield
    except OSError as error:
        raise DataError(
            f"the cache {folder} cannot be written ({error}); set UNSEEN_CACHE to another folder"
        ) from error


def _sync(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _idle(folder: Path) -> float:
    """Seconds since anything in it was written."""
    try:
        return time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return 0.0
