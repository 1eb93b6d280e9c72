"""Many clients at a time, each with a connection that it keeps."""

import http.client
import io
import itertools
import json
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

BOUNDARY = "one-image-after-the-other"
HEADERS = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def make_pictures(number: int, side: int = 32) -> list[bytes]:
    """PNG files of soft random shapes."""
    random = np.random.default_rng(0)
    found: list[bytes] = []
    for _ in range(number):
        shapes = Image.fromarray(random.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        file = io.BytesIO()
        shapes.resize((side, side), Image.Resampling.BICUBIC).save(file, "PNG")
        found.append(file.getvalue())
    return found


def multipart(*files: bytes | tuple[str, bytes]) -> bytes:
    """A body with these files; those without a name have a number."""
    body = b""
    for number, each in enumerate(files):
        name, data = each if isinstance(each, tuple) else (f"{number}.png", each)
        about = f"Content-Disposition: form-data; name=images; filename={name}"
        head = f"--{BOUNDARY}\r\n{about}\r\nContent-Type: image/png\r\n\r\n"
        body += head.encode() + data + b"\r\n"
    return body + f"--{BOUNDARY}--\r\n".encode()


class Answer(NamedTuple):
    """`status` 0: there was none."""

    status: int
    body: bytes = b""

    @property
    def images(self) -> list[dict[str, Any]]:
        return json.loads(self.body)["images"]


class Crowd:
    """Clients that share a list of requests. A request is sent again after 503, never after a
    broken connection: that answer is lost."""

    def __init__(self, port: int, bodies: Sequence[bytes], clients: int) -> None:
        self.answers: list[Answer | None] = [None] * len(bodies)
        self.seconds: list[float] = []
        """The time from each request to its answer."""
        self.refused = 0
        self._port, self._bodies = port, bodies
        self._next = itertools.count()
        self._given_up = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    @property
    def answered(self) -> int:
        return sum(answer is not None and answer.status == 200 for answer in self.answers)

    def _work(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        while (number := next(self._next)) < len(self._bodies) and not self._given_up.is_set():
            start = time.perf_counter()
            try:
                self.answers[number] = self._ask(connection, self._bodies[number])
                self.seconds.append(time.perf_counter() - start)
            except ConnectionRefusedError:
                self._given_up.set()  # the service has ended
            except (OSError, http.client.HTTPException):
                self.answers[number] = Answer(0)
                connection.close()
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, body: bytes) -> Answer:
        while True:
            connection.request("POST", "/predict", body, HEADERS)
            with connection.getresponse() as response:
                content = response.read()
            if response.status != 503:
                return Answer(response.status, content)
            self.refused += 1
            time.sleep(float(response.headers["Retry-After"]))


def ask_all(port: int, bodies: Sequence[bytes], clients: int = 32) -> Crowd:
    crowd = Crowd(port, bodies, clients)
    crowd.start()
    crowd.join()
    return crowd
