"""From the bytes of a file to prepared pixels: size first, then the rest, in worker threads."""

import asyncio
import base64
import binascii
import io
import json
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from unseen.data.images import open_image, to_square
from unseen.errors import DataError
from unseen.forecast.profile import image_statistics
from unseen.serve.limits import Limits, Refusal, Share

LONGEST_NAME = 200
_TYPES = "send images as multipart/form-data, or as application/json with base64"


class Upload(NamedTuple):
    """An image as it was sent; the name is only ever shown."""

    name: str
    data: bytes


async def read_body(request: Request, limits: Limits, held: Share) -> bytes:
    """All of it. Bytes are counted as they come, whatever the head of the request claims."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.bytes:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.read_seconds):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limits.bytes:
                    raise _too_large(limits)
                held.take(len(chunk))
                body += chunk
    except TimeoutError as error:
        raise Refusal(
            408, f"the request did not arrive within {limits.read_seconds:g} seconds"
        ) from error
    return bytes(body)


def _too_large(limits: Limits) -> Refusal:
    return Refusal(
        413,
        f"the request is larger than {limits.bytes} bytes; send fewer or smaller images, or start "
        "the service with a larger --max-bytes",
    )


def check_type(content_type: str) -> None:
    """Refuse what `find_uploads` cannot read, before the body is read."""
    kind, options = parse_options_header(content_type)
    if kind not in (b"multipart/form-data", b"application/json"):
        found = f"Content-Type is '{content_type[:LONGEST_NAME]}'"
        raise Refusal(415, f"{found if content_type else 'there is no Content-Type'}; {_TYPES}")
    if kind == b"multipart/form-data" and not options.get(b"boundary"):
        raise Refusal(415, "multipart/form-data needs a boundary in its Content-Type")


def find_uploads(content_type: str, body: bytes, limits: Limits) -> list[Upload]:
    """The images of a body, in order."""
    kind, options = parse_options_header(content_type)
    multipart = kind == b"multipart/form-data"
    found = _from_parts(options[b"boundary"], body, limits) if multipart else _from_json(body)
    _check_number(len(found), limits)
    if not found:
        raise Refusal(422, f"the request has no image; {_TYPES}")
    return found


def _check_number(number: int, limits: Limits) -> None:
    if number > limits.images:
        raise Refusal(
            413,
            f"the request has more than {limits.images} images; send fewer at a time, or start the "
            "service with a larger --max-images",
        )


def _from_json(body: bytes) -> list[Upload]:
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, "the body is not JSON") from error
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not all(isinstance(each, str) for each in images):
        raise Refusal(422, 'expected {"images": ["...", ...]} with each image as base64 text')
    return [_from_base64(number, text) for number, text in enumerate(images, start=1)]


def _from_base64(number: int, text: str) -> Upload:
    try:
        return Upload(f"image {number}", base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError) as error:
        raise Refusal(422, f"image {number} is not base64") from error


class _Parts:
    """Collects the files of a multipart body while it is parsed."""

    def __init__(self, limits: Limits) -> None:
        self.uploads: list[Upload] = []
        self.complete = False
        self._limits = limits
        self._field, self._value, self._data = bytearray(), bytearray(), bytearray()
        self._name: str | None = None

    def on_part_begin(self) -> None:
        _check_number(len(self.uploads) + 1, self._limits)
        self._data, self._name = bytearray(), None

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if bytes(self._field).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            if b"filename" in options:
                self._name = options[b"filename"].decode("utf-8", "replace")[:LONGEST_NAME]
        self._field, self._value = bytearray(), bytearray()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def on_part_end(self) -> None:
        if self._name is None:
            raise Refusal(422, "a part of the request is not a file; send nothing but image files")
        name = self._name or f"image {len(self.uploads) + 1}"
        self.uploads.append(Upload(name, bytes(self._data)))

    def on_end(self) -> None:
        self.complete = True


def _from_parts(boundary: bytes, body: bytes, limits: Limits) -> list[Upload]:
    parts = _Parts(limits)
    names = (name for name in dir(parts) if name.startswith("on_"))
    try:
        parser = MultipartParser(boundary, {name: getattr(parts, name) for name in names})  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except (FormParserError, UnicodeError) as error:
        raise Refusal(422, "the body is not multipart/form-data") from error
    if not parts.complete:
        raise Refusal(422, "the body ends before its last boundary: it is not complete")
    return parts.uploads


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
