"""python -m benchmarks.service.attacks: what hostile clients can do to the service, in figures.

Each attack has a service of its own on 127.0.0.1 and at most a minute. While it lasts, `/health` is
asked all the time: the table has its slowest answer, the peak of memory, and what was answered.
"""

import argparse
import contextlib
import http.client
import io
import json
import re
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.service.clients import ask_all, make_pictures, multipart
from benchmarks.service.mutations import FORM, JSON, post
from benchmarks.service.process import Running, make_models, running

PATIENCE = 60.0
MOST_BYTES = 19_000_000


def deep_png(width: int = 5000, height: int = 5000) -> bytes:
    """25 megapixels of 16 bits in 0.2 MB."""
    return _saved(Image.fromarray(np.full((height, width), 300, dtype=np.uint16)), "PNG")


def float_tiff() -> bytes:
    """25 megapixels of floats in few bytes."""
    return _saved(Image.new("F", (5000, 5000), 0.5), "TIFF", compression="tiff_adobe_deflate")


def narrow_png() -> bytes:
    """One column of 24 million rows in 0.05 MB: each row takes memory when it is resized."""
    return _saved(Image.new("1", (1, 24_000_000), 1), "PNG")


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def rle_bmp(side: int = 4800, rows: int = MOST_BYTES // 9602) -> bytes:
    """A BMP of 8 bits in runs of one pixel."""
    row = b"\1\7" * side + b"\0\0"
    data, palette = row * rows + b"\0\1", bytes(range(256)) * 4
    header = struct.pack("<IiiHHIIiiII", 40, side, rows, 1, 8, 1, len(data), 0, 0, 256, 0)
    start = 14 + len(header) + len(palette)
    return struct.pack("<2sIII", b"BM", start + len(data), 0, start) + header + palette + data


def plain_ppm() -> bytes:
    """A PPM written in digits."""
    return b"P3 1700 1800 255 " + b"7 " * (1700 * 1800 * 3)


def many_scans(number: int = 2000, side: int = 3000) -> bytes:
    """A progressive JPEG of 9 megapixels whose last scan comes again and again."""
    data = _saved(Image.new("RGB", (side, side), "gray"), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * number + data[-2:]


def send(port: int, data: bytes, half_closed: bool = False) -> str:
    """The status of one exchange; `closed` without one."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(data)
        if half_closed:
            client.shutdown(socket.SHUT_WR)
        try:
            head = client.recv(65536)
        except TimeoutError:
            return f"none in {PATIENCE:.0f} s"
        except ConnectionError:
            return "closed"
    return head[9:12].decode() if head else "closed"


def several(data: bytes, number: int = 4) -> Callable[[Running], str]:
    """The same request from some clients at a time."""

    def attack(service: Running) -> str:
        with ThreadPoolExecutor(number) as pool:
            return said(pool.map(lambda _: send(service.port, data), range(number)))

    return attack


def said(answers: Iterator[str]) -> str:
    return ", ".join(f"{number} × {answer}" for answer, number in Counter(answers).items())


def stalled(number: int, data: bytes) -> Callable[[Running], str]:
    """So many clients send the beginning of a request and stay; how long until one that is honest
    has an answer?"""

    def attack(service: Running) -> str:
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                client = socket.create_connection(("127.0.0.1", service.port))
                stack.enter_context(client)
                with contextlib.suppress(OSError):
                    client.sendall(data)
            start = time.perf_counter()
            good = ask_all(service.port, [multipart(*make_pictures(1))], 1)
            answered = {answer.status for answer in good.answers if answer}
            return f"honest request: {answered} after {time.perf_counter() - start:.1f} s"

    return attack


def foreign(headers: str) -> Callable[[Running], str]:
    """A page of another port or site posts a picture."""
    return lambda service: send(service.port, post(multipart(*make_pictures(1)), headers + FORM))


def attacks() -> dict[str, Callable[[Running], str]]:
    good = post(multipart(*make_pictures(1)))
    body = post(b"\0" * 19_999_990, FORM, length=20_000_000)
    return {
        "JSON of 19 MB, [],[],…": several(post(b"[" + b"[]," * (MOST_BYTES // 3) + b"[]]", JSON)),
        'JSON of 19 MB, {"a":1},…': several(
            post(b"[" + b'{"a":1},' * (MOST_BYTES // 8) + b"{}]", JSON)
        ),
        "PNG of 25 megapixels in 16 bits": several(post(multipart(deep_png()))),
        "TIFF of 25 megapixels in floats": several(post(multipart(float_tiff()))),
        "PNG of 1 x 24 million pixels": several(post(multipart(narrow_png()))),
        "BMP of 19 MB, run-length": several(post(multipart(rle_bmp()))),
        "PPM of 18 MB in digits": several(post(multipart(plain_ppm()))),
        "JPEG of 2,000 scans": several(post(multipart(many_scans()))),
        "form of one part, 19 MB of head": several(
            post(multipart(b"x").replace(b"Content-Type", b"X: y\r\n" * 3_000_000 + b"X"))
        ),
        "600 senders of half a head": stalled(600, b"POST /predict HTTP/1.1\r\nHost: loc"),
        "600 senders of half a body": stalled(600, good[:-20]),
        "10 senders of 20 MB that stop": stalled(10, body),
        "half-closed connection": lambda service: send(service.port, good, half_closed=True),
        "page of another port (Origin)": foreign("Origin: http://localhost:3000\r\n"),
        "page of another port (same-site)": foreign("Sec-Fetch-Site: same-site\r\n"),
    }


class Health:
    """Asks for `/health` all the time; knows the slowest answer."""

    def __init__(self, port: int) -> None:
        self.slowest, self.failed = 0.0, 0
        self._port, self._end = port, threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._end.wait(0.05):
            start = time.perf_counter()
            client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            try:
                client.request("GET", "/health", headers={"Host": "localhost"})
                self.failed += json.load(client.getresponse()).get("status") != "ok"
            except (OSError, http.client.HTTPException, ValueError):
                self.failed += 1
            client.close()
            self.slowest = max(self.slowest, time.perf_counter() - start)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


def peak_bytes(service: Running) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service.attacks")
    parser.add_argument("--only", default="", help="attacks whose name has this word")
    chosen = parser.parse_args()
    print("| attack | tried | answers | slowest /health | memory |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="unseen-bench-") as name:
        model = make_models(Path(name)).onnx
        for attack, run in attacks().items():
            if chosen.only not in attack:
                continue
            with running(model) as service:
                before, health = peak_bytes(service), Health(service.port)
                start = time.perf_counter()
                answers = run(service)
                seconds = time.perf_counter() - start
                health.stop()
                more = (peak_bytes(service) - before) / 1e6
            failed = f", {health.failed} failed" if health.failed else ""
            print(
                f"| {attack} | {seconds:.1f} s | {answers} | {health.slowest:.2f} s{failed} | "
                f"+{more:.0f} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
