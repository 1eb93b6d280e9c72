"""Asks the service in this process, without a network."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from unseen.serve.predictor import Predictions, Predictor
from unseen.serve.server import Guard

BOUNDARY = "line"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


async def ask(
    guard: Guard,
    path: str,
    chunks: Iterable[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """POST where there is a body, else GET. A chunk of `None` is a client that leaves."""
    method = "GET" if chunks is None else "POST"
    sent = list(chunks or [])
    named = {"host": "localhost:8000", **(headers or {})}
    if chunks is not None and "content-length" not in named:
        named["transfer-encoding"] = "chunked"
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(key.lower().encode(), value.encode()) for key, value in named.items()],
    }
    replies: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            return {"type": "http.request", "body": b"", "more_body": False}
        chunk = sent.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        replies.append(message)

    await guard(scope, receive, send)
    start = replies[0]
    found = {key.decode(): value.decode() for key, value in start["headers"]}
    return Reply(start["status"], found, b"".join(each.get("body", b"") for each in replies[1:]))


def multipart(*files: tuple[str, bytes]) -> bytes:
    parts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + data
        + b"\r\n"
        for name, data in files
    )
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


class BrightnessModel(Predictor):
    """Two classes, dark and bright; remembers the size of every batch."""

    def __init__(self) -> None:
        self.classes, self.domains = ["dark", "bright"], ["night", "day"]
        self.image_size, self.has_opinions = 8, True
        self.batches: list[int] = []

    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None, opinions: bool, raw: bool = False
    ) -> Predictions:
        self.batches.append(len(pixels))
        bright = pixels.mean(axis=(1, 2, 3)) / 255
        probabilities = np.stack([1 - bright, bright], axis=1)
        night = np.stack([np.ones_like(bright), np.zeros_like(bright)], axis=1)
        return Predictions(probabilities, np.stack([night, probabilities], axis=1))
