"""Requests that no client should send: damaged images and bodies, bombs, nonsense, slow senders."""

import base64
import contextlib
import json
import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from benchmarks.service.clients import BOUNDARY, multipart

FORM = f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
JSON = "Content-Type: application/json\r\n"
PATIENCE = 60.0
"""Seconds after which a service that says nothing counts as hanging."""


class Mutation(NamedTuple):
    """What is sent; then the client waits for an answer, leaves, or goes on very slowly."""

    kind: str
    data: bytes
    then: str = "wait"


class Outcome(NamedTuple):
    """`status` 0: the service closed the connection; -1: it hung."""

    kind: str
    status: int
    body: bytes


def post(body: bytes, headers: str = FORM, length: int | None = None) -> bytes:
    number = len(body) if length is None else length
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {number}\r\n\r\n"
    return head.encode("latin-1") + body


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"\0" * 5_000_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def _flipped(data: bytes, draw: random.Random, first: int = 0) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 20)):
        changed[draw.randrange(first, len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _json(content: object) -> bytes:
    return post(json.dumps(content).encode(), JSON)


def _wrong_json(image: bytes, draw: random.Random) -> bytes:
    text = base64.b64encode(image).decode()
    wrong: list[object] = [
        None, 5, "text", [], {}, {"images": None}, {"images": text}, {"images": [None]},
        {"images": [[text]]}, {"images": [{"path": "/etc/passwd"}]}, {"images": [text[:-3]]},
        {"images": ["/etc/passwd"]}, {"images": [""]}, {"images": ["é" * 50]},
        {"images": [text] * 500}, {"images": [base64.b64encode(_cut(image, draw)).decode()]},
    ]  # fmt: skip
    raw = [b"[" * 200_000, b'{"images": [' + b"9" * 50_000 + b"]}", b"\xff\xfe", b'{"images"', b""]
    place = draw.randrange(len(wrong) + len(raw))
    return _json(wrong[place]) if place < len(wrong) else post(raw[place - len(wrong)], JSON)


def _nonsense(image: bytes, draw: random.Random) -> bytes:
    whole = post(multipart(image))
    chunked = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{FORM}Transfer-Encoding: chunked\r\n"
    choices = [
        draw.randbytes(draw.randrange(1, 3000)) + b"\r\n\r\n",
        whole.replace(b"POST", b"P\x00ST"),
        whole.replace(b"HTTP/1.1", b"HTTP/9.9"),
        whole.replace(b"Content-Length: ", b"Content-Length: -"),
        whole.replace(b"Content-Length: ", b"Content-Length: 9\r\nContent-Length: "),
        chunked.encode() + b"\r\nzz\r\nnot a size\r\n",
        chunked.encode() + b"Content-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        chunked.encode() + b"\r\nffffffffffffffff\r\nhello\r\n",
        whole.replace(b"/predict", b"/../../etc/passwd"),
        whole.replace(b"/predict", b"/predict%00%ff?" + b"a" * 5000),
        whole.replace(b"POST", draw.choice([b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE"])),
        whole.replace(b"multipart/form-data", draw.choice([b"text/html", b"image/png", b"\xe9"])),
        whole.replace(BOUNDARY.encode(), b"b" * 500, 1),
        post(multipart(image), "Content-Type: multipart/form-data\r\n"),
        post(multipart(image), "Upgrade: websocket\r\nConnection: Upgrade\r\n" + FORM),
    ]
    return draw.choice(choices)


def _huge_head(_: bytes, draw: random.Random) -> bytes:
    long = f"X-Long: {'a' * draw.randrange(70_000, 500_000)}\r\n"
    many = "".join(f"X-{number}: {number}\r\n" for number in range(draw.randrange(50, 9000)))
    return post(b"{}", draw.choice([long, many]) + JSON)


def _too_long(image: bytes, draw: random.Random) -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n"
    piece = b"10000\r\n" + b"\0" * 65536 + b"\r\n"
    many = multipart(*[image] * draw.randrange(65, 200))
    return draw.choice([head.encode() + piece * 40 + b"0\r\n\r\n", post(many)])


def _damaged(image: bytes, draw: random.Random) -> bytes:
    changed = draw.choice([_cut, _flipped])(image, draw)
    return post(multipart(*[changed] * draw.randint(1, 4)))


def _bombs(_: bytes, draw: random.Random) -> bytes:
    sides = draw.choice([(60_000, 60_000), (30_000, 30_000), (5000, 4000), (2**31 - 1, 1)])
    return post(multipart(bomb(*sides)))


def _damaged_body(image: bytes, draw: random.Random) -> bytes:
    body = multipart(image, image)
    return post(draw.choice([_cut, _flipped])(body, draw))


def _damaged_request(image: bytes, draw: random.Random) -> bytes:
    return _flipped(post(multipart(image)), draw)


_WAITING: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "damaged image": _damaged,
    "bomb": _bombs,
    "damaged body": _damaged_body,
    "damaged request": _damaged_request,
    "wrong JSON": _wrong_json,
    "nonsense": _nonsense,
    "huge head": _huge_head,
    "too long": _too_long,
}


def mutations(images: list[bytes], number: int, seed: int = 0) -> Iterator[Mutation]:
    """As many of each kind; the same for the same seed."""
    draw = random.Random(seed)
    kinds = [*_WAITING, "leaves at once", "leaves halfway", "slow head", "slow body"]
    for place in range(number):
        kind, image = kinds[place % len(kinds)], draw.choice(images)
        whole = post(multipart(image))
        if kind in _WAITING:
            yield Mutation(kind, _WAITING[kind](image, draw))
        elif kind.startswith("leaves"):
            yield Mutation(kind, whole if kind.endswith("once") else _cut(whole, draw), "leave")
        else:
            head = whole.index(b"\r\n\r\n")
            first, last = (4, head) if kind == "slow head" else (head + 4, len(whole))
            yield Mutation(kind, whole[: draw.randrange(first, last)], "crawl")


def attack(port: int, mutation: Mutation) -> Outcome:
    """One connection; a crawling client sends a byte a second until it is cut off."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        with contextlib.suppress(OSError):  # an early answer may be there already
            connection.sendall(mutation.data)
        if mutation.then == "leave":
            return Outcome(mutation.kind, 0, b"")
        try:
            return Outcome(mutation.kind, *_read(connection, mutation.then == "crawl"))
        except OSError:
            return Outcome(mutation.kind, 0, b"")


def _read(connection: socket.socket, crawl: bool) -> tuple[int, bytes]:
    """Status and everything up to the end of the connection, or a moment after the answer."""
    received, waited = b"", 0.0
    connection.settimeout(1.0)
    while waited < PATIENCE:
        try:
            data = connection.recv(65536)
        except TimeoutError:
            if received:
                break
            waited += 1.0
            if crawl:
                connection.sendall(b"x")
            continue
        if not data:
            break
        received += data
        if _complete(received):
            break
    else:
        return -1, b""
    return int(received[9:12]) if received.startswith(b"HTTP/1.") else 0, received


def _complete(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if separator and line.startswith(b"content-length: "):
            return len(body) >= int(line.rpartition(b" ")[2])
    return False


def attack_all(port: int, wanted: Iterator[Mutation], at_a_time: int = 24) -> list[Outcome]:
    with ThreadPoolExecutor(at_a_time) as pool:
        return list(pool.map(lambda each: attack(port, each), wanted))


def failures(outcomes: list[Outcome]) -> list[Outcome]:
    """Errors of the service, traces of its inside, and hanging."""
    return [
        each
        for each in outcomes
        if each.status == -1
        or (each.status >= 500 and each.status != 503)
        or b"Traceback" in each.body
        or b'File "' in each.body
    ]
