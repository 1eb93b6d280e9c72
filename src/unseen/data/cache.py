"""Prepared images on disk: complete or absent, and checked whenever they are opened."""

import io
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
    """Return $UNSEEN_CACHE, or ~/.cache/unseen."""
    chosen = os.environ.get("UNSEEN_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "unseen"


def read_if_whole(file: Path) -> dict[str, Any]:
    """Return what a small file in the cache holds; nothing, if it is missing or damaged."""
    try:
        return dict(read_json(file))
    except (UnseenError, OSError, TypeError, ValueError):
        return {}


def encode(pixels: np.ndarray, form: Form) -> bytes:
    """Turn one image into what is stored: raw, or JPEG of hardly visible loss (benchmarks/)."""
    if form == "decoded":
        return pixels.tobytes()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


class StoredImages:
    """A cache that was opened and checked: uint8 [n, size, size, 3] by row."""

    def __init__(self, folder: Path, form: Form, size: int, count: int, left_out: dict[str, str]):
        self.form, self.size = form, size
        self.left_out = left_out
        """Unreadable images by name, with the reason."""
        self._bytes = np.memmap(folder / IMAGES, np.uint8, "r")
        if form == "decoded":
            self._pixels = np.asarray(self._bytes).reshape(count, size, size, 3)
        else:  # decoded on all cores; the bytes stay on disk and in the system's page cache
            self._offsets = np.load(folder / OFFSETS)
            self._pool = ThreadPoolExecutor(os.cpu_count())

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the pixels of these rows."""
        if self.form == "decoded":
            return self._pixels[rows]
        pixels = np.empty((len(rows), self.size, self.size, 3), dtype=np.uint8)

        def decode(place: int) -> None:
            start, end = self._offsets[rows[place]], self._offsets[rows[place] + 1]
            pixels[place] = np.asarray(Image.open(io.BytesIO(self._bytes[start:end].tobytes())))

        list(self._pool.map(decode, range(len(rows))))
        return pixels


class Builder:
    """Collects prepared images in a folder of its own, which enters the cache once complete."""

    def __init__(self, folder: Path, form: Form, size: int) -> None:
        self.final, self.size = folder, size
        self.form: Form = form
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
        """Bring everything to the disk, then the manifest, then the final name."""
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
        """Take the final name, unless another process was faster; a damaged cache is removed."""
        while not open_stored(self.final):
            try:
                self.folder.rename(self.final)
            except OSError:
                if not self.final.exists():
                    raise
                if not open_stored(self.final):
                    aside = self.folder.with_name(f"{self.folder.name}-damaged")
                    self.final.rename(aside)
                    shutil.rmtree(aside, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_stored(folder: Path) -> StoredImages | None:
    """Open the cache in this folder; None when there is none, or when it is incomplete."""
    about = read_if_whole(folder / MANIFEST)
    try:
        sizes = {name: (folder / name).stat().st_size for name in about["bytes"]}
        if about["version"] != PREPARATION_VERSION or sizes != about["bytes"]:
            return None
        return StoredImages(folder, about["form"], about["size"], about["count"], about["left_out"])
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


def _sync(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _idle(folder: Path) -> float:
    """Return the seconds since anything in it was written."""
    try:
        return time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return 0.0
