"""Images are decoded and resized once; training then reads prepared pixels."""

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from unseen import across_devices
from unseen.atomic import atomic_file, write_json
from unseen.data import cache
from unseen.data.cache import digest, read_if_whole, read_manifest
from unseen.data.dataset import Dataset
from unseen.data.decoding import (
    UNREADABLE,
    Made,
    ProgressCallback,
    Workers,
    in_shards,
    in_threads,
    make,
    read,
)
from unseen.data.index import Index
from unseen.errors import DataError

IMAGES = "images.bin"
OFFSETS = "offsets.npy"
DIGESTS = "digests.npy"
FEW = 50_000
"""Images up to which every file is looked at whenever a run starts."""


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


class _Contents:
    """A digest of every image of a dataset, as they were last time, and as they are now; unchanged
    files are known without being read."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.names = dataset, dataset.index().names
        kind, root = type(dataset), dataset.root.resolve() if dataset.root else ""
        origin = digest([f"{kind.__module__}:{kind.__qualname__} {root}"])[:32]
        self._file = cache.cache_folder() / "contents" / f"{origin}.npz"
        self._note_file = self._file.with_suffix(".json")
        self._note = read_if_whole(self._note_file)
        self.last = str(self._note.get("last"))
        """The digest of the whole dataset when it was last prepared."""
        since = dataset.unchanged_since
        trusted = since is not None and len(self.names) > FEW
        self.trusted: str | None = self._note.get(str(since)) if trusted else None
        """The digest of a large dataset in which no folder has changed."""

    def look_at_files(self) -> None:
        """Look at the size and time of every file; the digests of unchanged ones are known."""
        self.marks = np.array([self._mark(n) for n in range(len(self.names))], dtype=np.uint64)
        self.digests = np.zeros((len(self.names), 32), dtype=np.uint8)
        """Those that are known; zeros for others."""
        try:
            with np.load(self._file, allow_pickle=False) as arrays:
                marks, digests = arrays["marks"], arrays["digests"]
        except (OSError, ValueError, KeyError):
            marks, digests = np.zeros(1, dtype=np.uint64), self.digests[:1]
        places = np.searchsorted(marks, self.marks).clip(max=len(marks) - 1)
        known = marks[places] == self.marks
        self.digests[known] = digests[places[known]]
        self._new = not known.all()

    def _mark(self, position: int) -> int:
        try:
            state = self.dataset.signature(position)
        except DataError as error:
            state = str(error)
        text = f"{self.names[position]}\0{state}".encode(errors="surrogateescape")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")

    def unknown(self) -> np.ndarray:
        """Return the positions of images whose digest is not known."""
        return np.flatnonzero(~self.digests.any(axis=1))

    def digest_one(self, position: int) -> None:
        """Read an image for its digest alone."""
        self.digests[position] = np.frombuffer(read(self.dataset, position)[0], np.uint8)

    def digest(self) -> str:
        """Return the digest of all names and images, and of how they are read."""
        texts = ["unreadable" if d == UNREADABLE else d.hex() for d in map(bytes, self.digests)]
        whole = digest(chain(*zip(self.names, texts, strict=True)))
        window = self.dataset.window
        return whole if window is None else digest([whole, f"window {window}"])

    def remember(self, content: str) -> None:
        """Keep what is known now, for the next time."""
        if len(self.unknown()):
            return
        if self._new:
            order = np.argsort(self.marks, kind="stable")
            arrays = {"marks": self.marks[order], "digests": self.digests[order]}
            cache.write_arrays(self._file, arrays)
        note = {"last": content, str(self.dataset.unchanged_since): content}
        if note != self._note:
            write_json(self._note_file, note)


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
    index, form = dataset.index(), dataset.config.cache
    if len(index) == 0:
        raise DataError(f"the dataset '{dataset.config.name}' has no images")
    if form == "auto":
        form = "decoded" if len(index) * size * size * 3 <= _memory() / 2 else "encoded"
    parent = cache.cache_folder() / "images"
    cache.remove_leftovers(parent)
    about = {"form": form, "size": size, "window": str(dataset.window)}
    contents = _Contents(dataset)
    content = None if every_file else contents.trusted
    if content is None or not read_manifest(_folder(parent, content, about)):
        contents.look_at_files()
        about["outline"] = digest(index.names)
        missing, content = contents.unknown(), None
        # images of these names that were prepared like this before may be the same ones
        kept = (read_if_whole(folder / cache.MANIFEST) for folder in parent.glob("*"))
        if len(missing) < len(index) or any(about.items() <= each.items() for each in kept):
            for _ in in_threads(contents.digest_one, missing, "checking", report):
                pass
            content = contents.digest()
        if content is None or not read_manifest(_folder(parent, content, about)):
            content = _build(contents, parent, about, report, workers)
        contents.remember(content)
    folder = _folder(parent, content, about)
    whole = read_manifest(folder)
    if not whole:
        raise DataError(f"the cache {folder} changed while it was read; try again")
    _check_left_out(dataset, whole["left_out"])
    return PreparedImages(index, content, folder, whole)


def _folder(parent: Path, content: str, about: dict[str, Any]) -> Path:
    texts = [content, str(about["size"]), about["form"], str(cache.PREPARATION_VERSION)]
    return parent / digest(texts)[:32]


def _report_nothing(doing: str, done: int, number: int) -> None:
    pass


def _memory() -> int:
    """Return the bytes of memory in this machine; 8 GB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def _build(
    contents: _Contents,
    parent: Path,
    about: dict[str, Any],
    report: ProgressCallback,
    workers: Workers | None,
) -> str:
    """Read, digest, decode, resize and store every image, and return the digest of all of them; bad
    ones are left out, or stop it if so set. What an older cache has is taken from there."""
    dataset, names = contents.dataset, contents.names
    form, size = about["form"], about["size"]
    state = hashlib.sha256(contents.marks.tobytes()).hexdigest()
    shards = parent / f"{cache.BUILDING}{digest([str(about), state])[:32]}"
    if workers is None:
        stored = _stored(_folder(parent, contents.last, about), about)

        def make_or_take(position: int) -> Made:
            known = contents.digests[position].tobytes()
            image = stored(known)
            return (known, image) if image else make(dataset, position, size, form)

        made = in_threads(make_or_take, np.arange(len(names)), "decoding", report)
    else:
        made = in_shards(dataset, size, form, shards, workers, report)
    bytes_each = size**2 * 3 if form == "decoded" else size**2 // 4
    left_out: dict[str, str] = {}
    ends = [0]
    with (
        cache.writing_to(parent, len(names) * bytes_each),
        cache.building(parent) as temporary,
    ):
        with (temporary / IMAGES).open("wb") as stream:
            for position, (found, image) in enumerate(made):
                contents.digests[position] = np.frombuffer(found, np.uint8)
                if isinstance(image, bytes):
                    stream.write(image)
                    ends.append(ends[-1] + len(image))
                else:
                    left_out[names[position]] = image
            _check_left_out(dataset, left_out)
            if len(left_out) == len(names):
                first = next(iter(left_out.values()))
                raise DataError(f"not one of {len(names)} images is readable; the first: {first}")
            stream.flush()
            os.fsync(stream.fileno())
        kept = [name not in left_out for name in names]
        arrays: dict[str, np.ndarray] = {DIGESTS: contents.digests[kept]}
        if form == "encoded":
            arrays[OFFSETS] = np.array(ends, dtype=np.int64)
        for name, array in arrays.items():
            with atomic_file(temporary / name) as file, file.open("wb") as stream:
                np.save(stream, array)
        cache.complete(temporary, about | {"left_out": left_out})
        content = contents.digest()
        cache.install(temporary, _folder(parent, content, about))
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
