"""Images are decoded and resized once; training then reads prepared pixels."""

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from PIL import Image

from unseen.atomic import atomic_file, write_json
from unseen.data.cache import (
    PREPARATION_VERSION,
    building,
    cache_folder,
    complete,
    read_if_whole,
    read_manifest,
    remove_leftovers,
    writing_to,
)
from unseen.data.dataset import Dataset
from unseen.data.images import to_square
from unseen.data.index import Index
from unseen.errors import DataError

ProgressCallback = Callable[[str, int, int], None]
"""Gets what is being done, how many images are done, and how many there are."""
Form = Literal["decoded", "encoded"]

CHUNK = 256
IMAGES = "images.bin"
OFFSETS = "offsets.npy"

Result = TypeVar("Result")


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
        else:  # decoded on all cores; the bytes stay on disk and in the system's page cache
            self._offsets = np.load(folder / OFFSETS)
            self._pool = ThreadPoolExecutor(os.cpu_count())

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
    dataset: Dataset, size: int, progress: ProgressCallback | None = None
) -> PreparedImages:
    """Return the dataset's prepared images, from the cache or made now."""
    report = progress or _report_nothing
    index = dataset.index()
    if len(index) == 0:
        raise DataError(f"the dataset '{dataset.config.name}' has no images")
    content = _content_digest(dataset, index, report)
    if dataset.window is not None:
        content = _digest([content, f"window {dataset.window}"])
    form = dataset.config.cache
    if form == "auto":
        form = "decoded" if len(index) * size * size * 3 <= _memory() / 2 else "encoded"
    key = _digest([content, str(size), form, str(PREPARATION_VERSION)])
    folder = cache_folder() / "images" / key[:32]
    if folder.parent.is_dir():
        remove_leftovers(folder.parent)
    about = read_manifest(folder)
    if not about:
        _build(dataset, index, folder, form, size, report)
        about = read_manifest(folder)
    if not about:
        raise DataError(f"the cache {folder} changed while it was read; try again")
    _check_left_out(dataset, about["left_out"])
    return PreparedImages(index, content, folder, about)


def _report_nothing(doing: str, done: int, number: int) -> None:
    pass


def _memory() -> int:
    """Return the bytes of memory in this machine; 8 GB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def _content_digest(dataset: Dataset, index: Index, report: ProgressCallback) -> str:
    """Digest all names and contents. Unchanged files are recognised without reading them."""

    def signature(position: int) -> str:
        try:
            return dataset.signature(position)
        except DataError as error:
            return str(error)

    def content(position: int) -> str:
        try:
            return hashlib.sha256(dataset.content(position)).hexdigest()
        except DataError:
            return "unreadable"

    kind = type(dataset)
    root = dataset.root.resolve() if dataset.root else ""
    signatures = map(signature, range(len(index)))
    origin = f"{kind.__module__}:{kind.__qualname__} {root}"
    quick = _digest(chain([origin], *zip(index.names, signatures, strict=True)))
    remembered = cache_folder() / "content" / f"{quick[:32]}.json"
    known = read_if_whole(remembered).get("content")
    if isinstance(known, str):
        return known
    hashed = list(_in_threads(content, len(index), "checking", report))
    digest = _digest(chain(*zip(index.names, hashed, strict=True)))
    if "unreadable" not in hashed:
        write_json(remembered, {"content": digest})
    return digest


def _build(
    dataset: Dataset, index: Index, folder: Path, form: Form, size: int, report: ProgressCallback
) -> None:
    """Decode, resize and store every image; bad ones are left out, or stop it if so set."""

    def make(position: int) -> bytes | str:
        try:
            return encode(to_square(dataset.read(position), size), form)
        except DataError as error:
            return str(error)

    bytes_each = size**2 * 3 if form == "decoded" else size**2 // 4
    left_out: dict[str, str] = {}
    ends = [0]
    with writing_to(folder.parent, len(index) * bytes_each), building(folder) as temporary:
        with (temporary / IMAGES).open("wb") as stream:
            made = _in_threads(make, len(index), "decoding", report)
            for name, image in zip(index.names, made, strict=True):
                if isinstance(image, bytes):
                    stream.write(image)
                    ends.append(ends[-1] + len(image))
                else:
                    left_out[name] = image
            _check_left_out(dataset, left_out)
            if len(left_out) == len(index):
                first = next(iter(left_out.values()))
                raise DataError(f"not one of {len(index)} images is readable; the first: {first}")
            stream.flush()
            os.fsync(stream.fileno())
        if form == "encoded":
            with atomic_file(temporary / OFFSETS) as file, file.open("wb") as stream:
                np.save(stream, np.array(ends, dtype=np.int64))
        complete(temporary, {"form": form, "size": size, "left_out": left_out})


def encode(pixels: np.ndarray, form: Form) -> bytes:
    """Turn one image into what is stored: raw, or JPEG of hardly visible loss (benchmarks/)."""
    if form == "decoded":
        return pixels.tobytes()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def _check_left_out(dataset: Dataset, left_out: dict[str, str]) -> None:
    if left_out and dataset.config.bad_images == "stop":
        reasons = "".join(f"\n  {reason}" for reason in list(left_out.values())[:20])
        more = f"\n  ... and {len(left_out) - 20} more" if len(left_out) > 20 else ""
        raise DataError(
            f"{len(left_out)} images cannot be used:{reasons}{more}\n"
            f"Repair or remove them, or train without them: data.bad_images=skip"
        )


def _in_threads(
    work: Callable[[int], Result], number: int, doing: str, report: ProgressCallback
) -> Iterator[Result]:
    """Yield work(0), work(1), ... in order; a bounded number of results waits in memory."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, number, CHUNK):
            report(doing, start, number)
            yield from pool.map(work, range(start, min(start + CHUNK, number)))
    report(doing, number, number)


def _digest(texts: Iterable[str]) -> str:
    """Return the sha256 of a list of texts, each kept apart from the next."""
    total = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogateescape")
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()
