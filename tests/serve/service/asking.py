"""Asks the service in this process, without a network."""

import asyncio
import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.service.clients import BOUNDARY
from PIL import Image

from unseen.serve.http import Guard
from unseen.serve.predictor import Predictions, Predictor

FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"content-type": "application/json"}
STALL = b"this client sends nothing more, and stays"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


async def ask(
    guard: Guard, path: str, *chunks: bytes | None, headers: dict[str, str] = FORM
) -> Reply:
    """POST where there is a body, else GET. A chunk of `None` is a client that leaves."""
    sent = list(chunks)
    named = {"host": "localhost:8000", **headers}
    if chunks and "content-length" not in named:
        named["transfer-encoding"] = "chunked"
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "POST" if chunks else "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(key.lower().encode(), value.encode()) for key, value in named.items()],
    }
    replies: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        chunk = sent.pop(0) if sent else b""
        if chunk is STALL:
            await asyncio.sleep(3600)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": chunk != b""}

    async def send(message: Any) -> None:
        replies.append(message)

    await guard(scope, receive, send)
    start = replies[0]
    found = {key.decode(): value.decode() for key, value in start["headers"]}
    return Reply(start["status"], found, b"".join(each.get("body", b"") for each in replies[1:]))


def picture(gray: int = 128, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    """The bytes of a gray image."""
    file = io.BytesIO()
    Image.new("RGB", size, (gray, gray, gray)).save(file, kind)
    return file.getvalue()


def metric(text: Sequence[str], name: str) -> float:
    """The value of a metric in the lines of the page for Prometheus."""
    [value] = [line.rpartition(" ")[2] for line in text if line.rpartition(" ")[0] == name]
    return float(value)


class BrightnessModel(Predictor):
    """Two classes, dark and bright; remembers the size of every batch. A `diverged` one predicts no
    number for white images."""

    classes, domains, image_size, has_opinions = ["dark", "bright"], ["night", "day"], 8, True

    def __init__(self, diverged: bool = False) -> None:
        self.batches: list[int] = []
        self.diverged = diverged

    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None = None, raw: bool = False
    ) -> Predictions:
        self.batches.append(len(pixels))
        bright = pixels.mean(axis=(1, 2, 3)) / 255
        bright[self.diverged & (bright == 1)] = np.nan
        probabilities = np.stack([1 - bright, bright], axis=1)
        night = np.stack([np.ones_like(bright), np.zeros_like(bright)], axis=1)
        return Predictions(probabilities, np.stack([night, probabilities], axis=1))
