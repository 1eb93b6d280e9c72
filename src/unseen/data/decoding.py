"""From the files of a dataset to stored pixels: by the threads of one process, or in shards by any
number of machines that see the same cache."""

import hashlib
import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from PIL import Image

from unseen.data.cache import digest, write_arrays
from unseen.data.dataset import Dataset, open_dataset
from unseen.data.images import to_square
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

Item = TypeVar("Item")
Result = TypeVar("Result")


def read(dataset: Dataset, position: int) -> Made:
    """Return the digest and the bytes of an image's file; or what is wrong with it."""
    try:
        content = dataset.content(position)
    except DataError as error:
        return UNREADABLE, str(error)
    return hashlib.sha256(content).digest(), content


def make(dataset: Dataset, position: int, size: int, form: Form) -> Made:
    """Read, decode and resize an image. What is stored of it are its pixels, or JPEG of hardly
    visible loss (benchmarks/)."""
    found, data = read(dataset, position)
    if isinstance(data, str):
        return found, data
    try:
        pixels = to_square(dataset.decode(data, position, size), size)
    except DataError as error:
        return found, str(error)
    if form == "decoded":
        return found, pixels.tobytes()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return found, buffer.getvalue()


def ahead(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, number: int
) -> Iterator[Result]:
    """Yield the work of each item in order, done by threads for some items ahead: no more than
    this number of results waits in memory."""
    with ThreadPoolExecutor(threads) as pool:
        following = iter(items)
        waiting = deque(pool.submit(work, item) for item in islice(following, number))
        while waiting:
            waiting.extend(pool.submit(work, item) for item in islice(following, 1))
            yield waiting.popleft().result()


def in_threads(
    work: Callable[[int], Result], positions: np.ndarray, doing: str, report: ProgressCallback
) -> Iterator[Result]:
    """Yield the work of each position in order."""
    number, cores, done = len(positions), os.cpu_count() or 1, 0

    def do(start: int) -> list[Result]:
        return [work(int(position)) for position in positions[start : start + TOGETHER]]

    if number:
        report(doing, 0, number)
    for finished in ahead(do, range(0, number, TOGETHER), cores, 4 * cores):
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
    if digest(dataset.index().names[shard.rows.start : shard.rows.stop]) != shard.outline:
        raise DataError(
            f"{dataset.root} has other files here than where the command was given, or has changed"
        )
    digests, made = zip(
        *(make(dataset, n, shard.size, shard.form) for n in shard.rows), strict=True
    )
    stored = [image if isinstance(image, bytes) else b"" for image in made]
    problems = [image if isinstance(image, str) else "" for image in made]
    texts = {"digests": b"".join(digests), "images": b"".join(stored)}
    texts["problems"] = json.dumps(problems).encode()
    arrays = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
    write_arrays(shard.file, arrays | {"sizes": np.array([len(image) for image in stored])})


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
    names, step = dataset.index().names, max(1, SHARD_BYTES // (size * size * 3))
    root = dataset.root and str(dataset.root.absolute() if dataset.root.exists() else dataset.root)
    config = dataset.config.model_copy(update={"root": root})
    shards: list[Shard] = []
    for start in range(0, len(names), step):
        rows, file = range(start, min(start + step, len(names))), folder / f"{start:09d}.npz"
        outline = digest(names[rows.start : rows.stop])
        shards.append(Shard(config, size, form, rows, outline, file))
    missing = [shard for shard in shards if not shard.file.is_file()]
    waiting, doing = workers(make_shard, missing), f"decoding in {len(shards)} shards"
    report(doing, 0, len(names))
    made_now = {shard.file for shard in missing}
    for shard in shards:
        if shard.file in made_now:
            next(waiting)
        try:
            with np.load(shard.file, allow_pickle=False) as arrays:
                digests, images, sizes = (arrays[name] for name in ("digests", "images", "sizes"))
                problems: list[str] = json.loads(arrays["problems"].tobytes())
        except OSError as error:
            raise DataError(
                f"{shard.file} is not here, though it was made ({error}): all machines need one "
                "cache; set UNSEEN_CACHE to a folder that they share"
            ) from error
        ends = np.cumsum(sizes)
        for row, problem in enumerate(problems):
            image = images[ends[row] - sizes[row] : ends[row]].tobytes()
            yield digests[32 * row : 32 * row + 32].tobytes(), problem or image
        report(doing, shard.rows.stop, len(names))
    for _ in waiting:  # there is none; whatever they work on comes to its end
        pass
