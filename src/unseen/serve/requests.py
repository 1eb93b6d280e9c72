"""Turns the bytes of a request into prepared pixels: sizes are checked first, within limits for one
request and for all of them together."""

import asyncio
import base64
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFile
from pydantic import BaseModel
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from unseen.data.images import Window, count_pixels
from unseen.errors import DataError
from unseen.serve.limits import Limits
from unseen.serve.predictor import read_pixels

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Some of what Pillow reads; other formats start programs or are rarely tested."""
LONGEST_NAME = 200
_LEAST_PATIENCE = 0.05
"""The share of its time that a sender has when there is no memory left."""
_MOST_EFFORT = 400_000_000
"""Pixels that a decoder may go over, in all its passes: a few seconds of a core."""
_PYTHON = 2000
"""Times that a decoder in Python takes as long as one in C."""
_STRUCTURE = tuple(bytes([sign]) for sign in b'[]{}:,"')
"""Signs that make JSON large in memory; base64 has none of them."""
_OTHER_SIGNS = 1000
"""Signs of structure for whatever else a client sends beside its images."""
_LONGEST_HEAD = 16_384
"""The most bytes before a file in a form: its name and type."""
_TYPES = "send images as multipart/form-data, or as application/json with base64"


class Allowance:
    """An amount that all requests share: each takes its part, and gives it back at its end."""

    def __init__(self, total: int, full: str) -> None:
        """`full` says what is the matter when nothing is left."""
        self.total, self.full = total, full
        self.taken = 0
        self._lock = threading.Lock()

    def check(self, amount: int = 1) -> None:
        """Refuse where so much is not left."""
        if self.taken + amount > self.total:
            problem = f"the service is busy: {self.full}; try again in a second"
            raise HTTPException(503, problem, {"Retry-After": "1"})

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yields what a request calls to take some; all of it is given back at the end."""
        mine = 0

        def take(amount: int) -> None:
            nonlocal mine
            with self._lock:
                self.check(amount)
                self.taken += amount
            mine += amount

        try:
            yield take
        finally:
            with self._lock:
                self.taken -= mine


@dataclass
class SentImage:
    """An image on its way from bytes to a prediction, or the problem with it, and the status that
    this would have as the only one of its request."""

    name: str
    """The name as it was sent, which is only ever shown."""
    data: bytes
    kind: str | None = None
    """The format, as Pillow names it."""
    pixels: np.ndarray | None = None
    statistics: np.ndarray | None = None
    probabilities: np.ndarray | None = None
    opinions: np.ndarray | None = None
    disagreement: float = 0.0
    looked: bool = False
    """Whether the answer is to show where the model looked."""
    heatmap: bytes = b""
    """A PNG of that."""
    problem: str | None = None
    status: int = 200

    def decode(self, size: int, limits: Limits, window: Window | None, measure: bool) -> None:
        """Prepare the pixels exactly as those of training images; `measure` their statistics."""
        try:
            with Image.open(io.BytesIO(self.data), formats=FORMATS) as header:
                pixels, kind = count_pixels(*header.size), header.format
                effort = _effort(header, self.data)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            pixels, kind, effort = limits.max_pixels + 1, None, 0
        except Exception:  # decoders raise nearly anything when bytes are damaged
            known = ", ".join(FORMATS)
            self.refuse(415, f"{self.name} is not an image of a known format ({known})")
            return
        if pixels > limits.max_pixels:
            problem = f"{self.name} has more than {limits.max_pixels} pixels; make it smaller, or"
            self.refuse(413, f"{problem} start the service with a larger --max-pixels")
        elif effort > _MOST_EFFORT:
            self.refuse(413, f"{self.name} takes too long to decode; save it as PNG or plain JPEG")
        else:
            try:
                found = read_pixels(self.data, self.name, size, window, FORMATS, measure)
                (self.pixels, self.statistics), self.kind = found, kind
            except DataError as error:
                self.refuse(422, str(error))

    def refuse(self, status: int, problem: str) -> None:
        self.status, self.problem = status, problem


def _effort(header: ImageFile.ImageFile, data: bytes) -> int:
    """The work of decoding an image, in pixels: each scan of a JPEG goes over all of them, and
    there may be thousands in a small file; Pillow decodes run-length BMP and plain PPM in Python,
    byte by byte."""
    pixels = header.width * header.height
    if any(tile.codec_name in Image.DECODERS for tile in header.tile):
        return _PYTHON * max(pixels, len(data) // 4)
    return pixels * data.count(b"\xff\xda") if data.startswith(b"\xff\xd8") else pixels


async def read_body(
    request: Request, limits: Limits, memory: Allowance, take: Callable[[int], None]
) -> bytes:
    """Read all of the body. Bytes are counted as they come, whatever the head claims; the less
    memory is left for others, the less time a sender has."""
    declared = request.headers.get("content-length", "")
    large = declared.isdigit() and int(declared) > limits.max_bytes
    body, more, start = bytearray(), True, time.monotonic()
    while more and not large:
        patience = limits.read_seconds * max(_LEAST_PATIENCE, 1 - memory.taken / memory.total)
        left = start + patience - time.monotonic()
        if left <= 0:
            raise HTTPException(408, f"the request did not arrive within {patience:.3g} seconds")
        try:
            async with asyncio.timeout(min(left, 1.0)):
                message = await request.receive()
        except TimeoutError:
            continue
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        large = len(body) + len(chunk) > limits.max_bytes
        if not large:
            take(len(chunk))
            body += chunk
    if large:
        problem = f"the request is larger than {limits.max_bytes} bytes; send fewer or smaller"
        raise HTTPException(413, f"{problem} images, or start the service with --max-bytes")
    return bytes(body)


def check_type(content_type: str) -> bytes | None:
    """Returns the boundary of a form, or None for JSON; refuses what `find_images` cannot read,
    before the body is read."""
    kind, options = parse_options_header(content_type)
    if kind == b"application/json":
        return None
    if kind != b"multipart/form-data":
        found = f"Content-Type is '{content_type[:LONGEST_NAME]}'"
        problem = f"{found if content_type else 'there is no Content-Type'}; {_TYPES}"
        raise HTTPException(415, problem)
    if not options.get(b"boundary"):
        raise HTTPException(415, "multipart/form-data needs a boundary in its Content-Type")
    return options[b"boundary"]


def find_images(boundary: bytes | None, body: bytes, limits: Limits) -> list[SentImage]:
    """The images of a body, in order."""
    most = limits.max_images
    found = _from_json(body, most) if boundary is None else _from_form(boundary, body, most)
    if len(found) > most:
        problem = f"the request has more than {most} images; send fewer at a time, or start the"
        raise HTTPException(413, f"{problem} service with a larger --max-images")
    if not found:
        raise HTTPException(422, f"the request has no image; {_TYPES}")
    return found


class _Body(BaseModel):
    images: list[str]


def _from_json(body: bytes, most: int) -> list[SentImage]:
    """The images of a JSON body; its structure is counted before it is parsed."""
    if sum(map(body.count, _STRUCTURE)) > 4 * most + _OTHER_SIGNS:
        raise HTTPException(413, f"the body has far more values than {most} images need; {_TYPES}")
    try:
        texts = ("".join(each.split()) for each in _Body.model_validate_json(body).images)
        found = [base64.b64decode(text, validate=True) for text in texts]
    except ValueError as error:
        problem = 'expected {"images": ["...", ...]} with each image as base64 text'
        raise HTTPException(422, problem) from error
    return [SentImage(f"image {number}", data) for number, data in enumerate(found, start=1)]


def _from_form(boundary: bytes, body: bytes, most: int) -> list[SentImage]:
    """The files of multipart/form-data, and one more than `most` where there are too many."""
    line = b"--" + boundary
    before, *parts = body.split(b"\r\n" + line, most + 2)
    if before.startswith(line):
        parts.insert(0, before.removeprefix(line))
    found: list[SentImage] = []
    for part in parts:
        if part.startswith(b"--") or len(found) > most:
            return found
        head, blank, data = part.partition(b"\r\n\r\n")
        if not blank or len(head) > _LONGEST_HEAD:
            break
        fields = (field.partition(b":") for field in head.split(b"\r\n"))
        about = next((v for name, _, v in fields if name.lower() == b"content-disposition"), b"")
        name = parse_options_header(about)[1].get(b"filename")
        if name is None:
            problem = "a part of the request is not a file; send nothing but image files"
            raise HTTPException(422, problem)
        text = name.decode("utf-8", "replace")[:LONGEST_NAME]
        found.append(SentImage(text or f"image {len(found) + 1}", data))
    raise HTTPException(422, "the body is not multipart/form-data, or not complete")
