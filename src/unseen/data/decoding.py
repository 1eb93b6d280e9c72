"""From the files of a dataset to stored pixels: by the threads of one process, or in shards by any
number of machines that see the same cache."""

import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from unseen.data.dataset import Dataset, open_dataset
from unseen.data.images import to_square
from unseen.data.known import digest, write_arrays
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

ProgressCallback = Callable[[str, int, int], None]
"""Gets what is being done, how many images are done, and how many there are."""
Form = Literal["decoded", "encoded"]
Made = tuple[bytes, bytes | str]
"""The digest of an image, and what is stored of it; or what is wrong with it."""
UNREADABLE = bytes(32)
TOGETHER = 16
"""Images that a thread takes at once."""
SHARD_BYTES = 2**28
"""Pixels in a shard: what a process on another machine has in memory."""

Result = TypeVar("Result")


def read(dataset: Dataset, position: int) -> Made:
    """Return the digest and the bytes of an image's file; or what is wrong with it."""
    try:
        content = dataset.content(position)
    except DataError as error:
        return UNREADABLE, str(error)
    return hashlib.sha256(content).digest(), content


def make(dataset: Dataset, position: int, size: int, form: Form) -> Made:
    """Read, decode and resize an image."""
    found, data = read(dataset, position)
    if isinstance(data, str):
        return found, data
    try:
        return found, encode(to_square(dataset.decode(data, position, size), size), form)
    except DataError as error:
        return found, str(error)


def encode(pixels: np.ndarray, form: Form) -> bytes:
    """Turn one image into what is stored: raw, or JPEG of hardly visible loss (benchmarks/)."""
    if form == "decoded":
        return pixels.tobytes()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def in_threads(
    work: Callable[[int], Result], positions: np.ndarray, doing: str, report: ProgressCallback
) -> Iterator[Result]:
    """Yield the work of each position in order; a bounded number of results waits in memory."""
    number, cores = len(positions), os.cpu_count() or 1

    def do(start: int) -> list[Result]:
        return [work(int(position)) for position in positions[start : start + TOGETHER]]

    waiting: deque[Future[list[Result]]] = deque()
    if number:
        report(doing, 0, number)
    with ThreadPoolExecutor(cores) as pool:
        starts = iter(range(0, number, TOGETHER))
        waiting.extend(pool.submit(do, start) for start in islice(starts, 4 * cores))
        done = 0
        while waiting:
            finished = waiting.popleft().result()
            waiting.extend(pool.submit(do, start) for start in islice(starts, 1))
            yield from finished
            done += len(finished)
            report(doing, done, number)


class Shard(NamedTuple):
    """Some neighbouring images of a dataset, and the file in the cache that they are made to."""

    config: DataSettings
    size: int
    form: Form
    rows: range
    outline: str
    """A digest of their names."""
    file: Path


Workers = Callable[[Callable[[Shard], None], Iterable[Shard]], Iterator[None]]
"""Calls a function for each shard, here or on other machines; ends with the first error."""


def make_shard(shard: Shard) -> None:
    """Make the images of a shard, one after the other, into a file that appears when all are."""
    dataset = open_dataset(shard.config)
    if _outline(dataset, shard.rows) != shard.outline:
        raise DataError(
            f"{dataset.root} has other files here than where the command was given, or has changed"
        )
    made = [make(dataset, position, shard.size, shard.form) for position in shard.rows]
    stored = [image if isinstance(image, bytes) else b"" for _, image in made]
    problems = [image if isinstance(image, str) else "" for _, image in made]
    arrays = {
        "digests": np.frombuffer(b"".join(found for found, _ in made), np.uint8),
        "images": np.frombuffer(b"".join(stored), np.uint8),
        "sizes": np.array([len(image) for image in stored]),
        "problems": np.frombuffer(json.dumps(problems).encode(), np.uint8),
    }
    write_arrays(shard.file, arrays)


def _outline(dataset: Dataset, rows: range) -> str:
    return digest(dataset.index().names[rows.start : rows.stop])


def in_shards(
    dataset: Dataset,
    size: int,
    form: Form,
    folder: Path,
    workers: Workers,
    report: ProgressCallback,
) -> Iterator[Made]:
    """Yield what `make` returns for each image, in order. Shards that are in the folder, because
    an earlier call was killed, are not made again."""
    number, step = len(dataset.index()), max(1, SHARD_BYTES // (size * size * 3))
    root = dataset.root and str(dataset.root.absolute() if dataset.root.exists() else dataset.root)
    config = dataset.config.model_copy(update={"root": root})
    starts = range(0, number, step)
    shards = [
        Shard(config, size, form, rows, _outline(dataset, rows), folder / f"{rows.start:09d}.npz")
        for rows in (range(start, min(start + step, number)) for start in starts)
    ]
    missing = [shard for shard in shards if not shard.file.is_file()]
    waiting, doing = workers(make_shard, missing), f"decoding in {len(shards)} shards"
    report(doing, 0, number)
    made_now = {shard.rows.start for shard in missing}
    for shard in shards:
        if shard.rows.start in made_now:
            next(waiting)
        yield from _read_shard(shard)
        report(doing, shard.rows.stop, number)
    for _ in waiting:  # there is none; whatever they work on comes to its end
        pass


def _read_shard(shard: Shard) -> Iterator[Made]:
    try:
        with np.load(shard.file, allow_pickle=False) as arrays:
            digests, images, sizes = (arrays[name] for name in ("digests", "images", "sizes"))
            problems: list[str] = json.loads(arrays["problems"].tobytes())
    except OSError as error:
        raise DataError(
            f"{shard.file} is not here, though it was made ({error}): all machines need one cache; "
            "set UNSEEN_CACHE to a folder that they share"
        ) from error
    starts = np.cumsum(sizes) - sizes
    for row, problem in enumerate(problems):
        image = images[starts[row] : starts[row] + sizes[row]].tobytes()
        yield digests[32 * row : 32 * row + 32].tobytes(), problem or image
