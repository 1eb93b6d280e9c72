"""From the bytes of a file to prepared pixels: size first, then the rest, in worker threads."""

import io
from typing import NamedTuple

import numpy as np
from PIL import Image

from unseen.data.images import open_image, to_square
from unseen.errors import DataError
from unseen.forecast.image_statistics import image_statistics
from unseen.service.bodies import Upload
from unseen.service.limits import Limits

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Of all that Pillow reads; others start programs or are rarely tested."""


class Picture(NamedTuple):
    """An image ready for the model, or why it is not, with the status that this would have as the
    only one of its request."""

    upload: Upload
    pixels: np.ndarray | None = None
    statistics: np.ndarray | None = None
    kind: str | None = None
    """The format, as Pillow names it."""
    problem: str | None = None
    status: int = 200


def decode(upload: Upload, size: int, limits: Limits) -> Picture:
    """Prepared exactly as training images are."""
    too_large = (
        f"{upload.name} has more than {limits.pixels} pixels; make it smaller, or start the "
        "service with a larger --max-pixels"
    )
    try:
        with Image.open(io.BytesIO(upload.data), formats=FORMATS) as header:
            (width, height), kind = header.size, header.format
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return Picture(upload, problem=too_large, status=413)
    except Exception:  # decoders raise nearly anything when bytes are damaged
        problem = f"{upload.name} is not an image of a known format ({', '.join(FORMATS)})"
        return Picture(upload, problem=problem, status=415)
    if width * height > limits.pixels:
        return Picture(upload, problem=too_large, status=413)
    try:
        image = open_image(upload.data, upload.name, FORMATS)
    except DataError as error:
        return Picture(upload, problem=str(error), status=422)
    statistics = image_statistics(image, len(upload.data))
    return Picture(upload, to_square(image, size), statistics, kind)
