"""Images are decoded and resized once; training then reads prepared pixels."""

import io
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from unseen import across_devices
from unseen.atomic import atomic_file
from unseen.data.cache import (
    BUILDING,
    MANIFEST,
    PREPARATION_VERSION,
    building,
    cache_folder,
    complete,
    install,
    read_if_whole,
    read_manifest,
    remove_leftovers,
    writing_to,
)
from unseen.data.contents import Contents
from unseen.data.dataset import Dataset
from unseen.data.decoding import Made, ProgressCallback, Workers, in_shards, in_threads, make
from unseen.data.index import Index
from unseen.data.known import digest
from unseen.errors import DataError

IMAGES = "images.bin"
OFFSETS = "offsets.npy"
DIGESTS = "digests.npy"


class PreparedImages:
    """All images of a dataset at one size, ready to be read in any order."""

    def __init__(self, index: Index, content: str, folder: Path, about: dict[str, Any]) -> None:
        self.left_out = tuple(about["left_out"])
        """Names of unreadable images."""
        self.index = index.without(set(self.left_out))
        """Positions refer to this index."""
        self.content = content
        """A digest of all names and image contents."""
        self.size, self.form = int(about["size"]), str(about["form"])
        self._bytes = np.memmap(folder / IMAGES, np.uint8, "r")
        if self.form == "decoded":
            self._pixels = np.asarray(self._bytes).reshape(-1, self.size, self.size, 3)
        else:  # decoded when read; the bytes stay on disk and in the system's page cache
            self._offsets = np.load(folder / OFFSETS)
            self._pool = ThreadPoolExecutor(across_devices.cores())

    def batch(self, positions: np.ndarray) -> torch.Tensor:
        """Return uint8 [n, 3, size, size], channels last in memory."""
        pixels = self._pixels[positions] if self.form == "decoded" else self._decoded(positions)
        return torch.as_tensor(pixels).permute(0, 3, 1, 2)

    def _decoded(self, positions: np.ndarray) -> np.ndarray:
        pixels = np.empty((len(positions), self.size, self.size, 3), dtype=np.uint8)

        def decode(place: int) -> None:
            start, end = self._offsets[positions[place]], self._offsets[positions[place] + 1]
            pixels[place] = np.asarray(Image.open(io.BytesIO(self._bytes[start:end].tobytes())))

        list(self._pool.map(decode, range(len(positions))))
        return pixels


def prepare(
    dataset: Dataset,
    size: int,
    progress: ProgressCallback | None = None,
    every_file: bool = False,
    workers: Workers | None = None,
) -> PreparedImages:
    """Return the dataset's prepared images, from the cache or made now: here, or in shards by
    `workers`, who go on where a call that was killed had come to.

    Of a large dataset whose folders have not changed no file is looked at, but with `every_file`.
    """
    report = progress or _report_nothing
    index = dataset.index()
    if len(index) == 0:
        raise DataError(f"the dataset '{dataset.config.name}' has no images")
    form = dataset.config.cache
    if form == "auto":
        form = "decoded" if len(index) * size * size * 3 <= _memory() / 2 else "encoded"
    parent = cache_folder() / "images"
    if parent.is_dir():
        remove_leftovers(parent)
    window = str(dataset.window)
    about = {"form": form, "size": size, "window": window}
    contents = Contents(dataset)
    content = None if every_file else contents.trusted()
    if content is None:
        contents.look_at_files()
        missing = contents.unknown()
        if len(missing) < len(index) or _seen_before(parent, about | {"outline": contents.outline}):
            for _ in in_threads(contents.digest_one, missing, "checking", report):
                pass
            content = contents.digest()
    folder = _folder(parent, content, about)
    if content is None or not read_manifest(folder):
        content = _build(contents, parent, about, report, workers)
        folder = _folder(parent, content, about)
    whole = read_manifest(folder)
    if not whole:
        raise DataError(f"the cache {folder} changed while it was read; try again")
    contents.remember(content)
    _check_left_out(dataset, whole["left_out"])
    return PreparedImages(index, content, folder, whole)


def _folder(parent: Path, content: str | None, about: dict[str, Any]) -> Path:
    form, size = about["form"], about["size"]
    return parent / digest([str(content), str(size), form, str(PREPARATION_VERSION)])[:32]


def _seen_before(parent: Path, about: dict[str, Any]) -> bool:
    """Say whether images of these names were prepared like this: they may be the same ones."""
    found = parent.iterdir() if parent.is_dir() else ()
    return any(about.items() <= read_if_whole(each / MANIFEST).items() for each in found)


def _report_nothing(doing: str, done: int, number: int) -> None:
    pass


def _memory() -> int:
    """Return the bytes of memory in this machine; 8 GB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def _build(
    contents: Contents,
    parent: Path,
    about: dict[str, Any],
    report: ProgressCallback,
    workers: Workers | None,
) -> str:
    """Read, digest, decode, resize and store every image, and return the digest of all of them; bad
    ones are left out, or stop it if so set. What an older cache has is taken from there."""
    dataset, index = contents.dataset, contents.index
    form, size = about["form"], about["size"]
    shards = parent / f"{BUILDING}{digest([str(about), contents.outline, contents.state()])[:32]}"
    if workers is None:
        stored = _stored(_folder(parent, contents.last(), about), about)

        def make_or_take(position: int) -> Made:
            known = contents.digests[position].tobytes()
            image = stored(known)
            return (known, image) if image else make(dataset, position, size, form)

        made = in_threads(make_or_take, np.arange(len(index)), "decoding", report)
    else:
        made = in_shards(dataset, size, form, shards, workers, report)
    bytes_each = size**2 * 3 if form == "decoded" else size**2 // 4
    left_out: dict[str, str] = {}
    ends = [0]
    with writing_to(parent, len(index) * bytes_each), building(parent) as temporary:
        with (temporary / IMAGES).open("wb") as stream:
            for position, (found, image) in enumerate(made):
                contents.digests[position] = np.frombuffer(found, np.uint8)
                if isinstance(image, bytes):
                    stream.write(image)
                    ends.append(ends[-1] + len(image))
                else:
                    left_out[index.names[position]] = image
            _check_left_out(dataset, left_out)
            if len(left_out) == len(index):
                first = next(iter(left_out.values()))
                raise DataError(f"not one of {len(index)} images is readable; the first: {first}")
            stream.flush()
            os.fsync(stream.fileno())
        kept = [name not in left_out for name in index.names]
        arrays: dict[str, np.ndarray] = {DIGESTS: contents.digests[kept]}
        if form == "encoded":
            arrays[OFFSETS] = np.array(ends, dtype=np.int64)
        for name, array in arrays.items():
            with atomic_file(temporary / name) as file, file.open("wb") as stream:
                np.save(stream, array)
        complete(temporary, about | {"outline": contents.outline, "left_out": left_out})
        content = contents.digest()
        install(temporary, _folder(parent, content, about))
    shutil.rmtree(shards, ignore_errors=True)
    return content


def _stored(folder: Path, about: dict[str, Any]) -> Callable[[bytes], bytes | None]:
    """Return what gives the stored form of the image with a digest, from an older cache."""
    if read_manifest(folder).get("window") != about["window"]:
        return lambda known: None
    digests, data = np.load(folder / DIGESTS), np.memmap(folder / IMAGES, np.uint8, "r")
    rows = {bytes(digests[row]): row for row in range(len(digests))}
    encoded, each = about["form"] == "encoded", about["size"] ** 2 * 3
    ends = np.load(folder / OFFSETS) if encoded else np.arange(len(digests) + 1) * each

    def stored(known: bytes) -> bytes | None:
        row = rows.get(known)
        return None if row is None else data[ends[row] : ends[row + 1]].tobytes()

    return stored


def _check_left_out(dataset: Dataset, left_out: dict[str, str]) -> None:
    if left_out and dataset.config.bad_images == "stop":
        reasons = "".join(f"\n  {reason}" for reason in list(left_out.values())[:20])
        more = f"\n  ... and {len(left_out) - 20} more" if len(left_out) > 20 else ""
        raise DataError(
            f"{len(left_out)} images cannot be used:{reasons}{more}\n"
            f"Repair or remove them, or train without them: data.bad_images=skip"
        )
