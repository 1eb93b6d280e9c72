"""Reads files, pictures and arrays as pixels prepared like training images, ahead of use."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from unseen.data.images import open_image, to_rgb, to_square
from unseen.errors import DataError

ImageLike = str | Path | Image.Image | np.ndarray


class Reading(NamedTuple):
    """An image and its pixels `[size, size, 3]`, or why there are none."""

    image: ImageLike
    pixels: np.ndarray | None
    problem: str | None


def read_ahead(images: Iterable[ImageLike], size: int, batch: int) -> Iterator[list[Reading]]:
    """Batches in order. Threads decode the next batch while this one is used, and no more: memory
    does not grow with the number of images."""
    source = iter(images)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pending = [pool.submit(read, image, size) for image in islice(source, batch)]
        while pending:
            upcoming = [pool.submit(read, image, size) for image in islice(source, batch)]
            yield [future.result() for future in pending]
            pending = upcoming


def read(image: ImageLike, size: int) -> Reading:
    """One image, prepared exactly as training images are."""
    try:
        return Reading(image, to_square(_opened(image), size), None)
    except DataError as error:
        return Reading(image, None, str(error))


def _opened(image: ImageLike) -> Image.Image:
    if isinstance(image, str | Path):
        return open_image(Path(image), str(image))
    if isinstance(image, Image.Image):
        return to_rgb(image)
    channels = image.shape[2:]
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or channels not in ((), (3,), (4,)):
        raise DataError(
            f"an array should be uint8 [height, width, 3], got {image.dtype} {image.shape}"
        )
    return to_rgb(Image.fromarray(image))


def check_several(images: object) -> None:
    """Refuse a single image where a list of them is expected."""
    single = isinstance(images, str | Path | Image.Image)
    if single or (isinstance(images, np.ndarray) and images.ndim != 4):
        raise DataError("expected a list of images; put a single image into a list")
