"""The service on the network: its paths, the guard before them, and the process, which runs until
it is told to end and then finishes what was accepted."""

import asyncio
import contextlib
import ctypes
import hmac
import ipaddress
import logging
import mimetypes
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from unseen.errors import UnseenError
from unseen.reports.page.parts import style
from unseen.serve.service import Service

_FILES = Path(__file__).with_name("page")
PAGES = {"/": "page.html", "/docs": "docs.html"}
PAGES |= {f"/{name}": name for name in ("page.css", "page.js", "docs.js", "openapi.json")}
OPEN_PATHS = ("/health", *PAGES)
"""Paths that need no token: they hold nothing of model or images."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
_PROBLEMS = {
    404: "there is no such page; /docs lists them",
    405: "wrong method for this page",
    500: "the service failed; its log says why",  # nothing of the inside of the program
}
MOST_CONNECTIONS = 512
LAST_SECONDS = 0.3
"""The time after the signal in which requests that were already sent still arrive."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_logger = logging.getLogger("unseen.service")


def build_app(service: Service) -> Starlette:
    """The paths of the service, for anybody who reaches them."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with service.running():
            yield

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "waiting": service.waiting})

    async def model(_: Request) -> Response:
        names = "classes", "domains", "image_size", "has_opinions", "has_heatmaps"
        about: dict[str, Any] = {name: getattr(service.predictor, name) for name in names}
        about |= {"name": service.name, "card": service.card, "limits": asdict(service.limits)}
        about["keeps_images"] = service.keeper is not None
        return JSONResponse(about | service.calibration())

    async def drift(_: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(service.watch.report))

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, service.metrics)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def refused(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return _problem(500)
        return _problem(error.status_code, error.detail, error.headers)

    async def page(request: Request) -> Response:
        name = PAGES[request.scope["path"]]
        text = (_FILES / name).read_text(encoding="utf-8")
        kind = mimetypes.types_map[Path(name).suffix]
        if kind == "text/css":  # the report's look, and what is only here
            text = style() + text
        return Response(text, media_type=f"{kind}; charset=utf-8")

    routes = [Route("/predict", service.predict, methods=["POST"])]
    routes += [Route(f"/{each.__name__}", each) for each in (health, model, drift, metrics)]
    routes += [Route(path, page) for path in PAGES]
    problems = {HTTPException: refused, Exception: refused}
    return Starlette(routes=routes, exception_handlers=problems, lifespan=lifespan)


def _problem(status: int, text: str = "", headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"problem": _PROBLEMS.get(status, text)}, status, headers)


class Guard:
    """Pure ASGI around the application, so that nothing passes it: who may ask, and what every
    answer carries."""

    def __init__(self, service: Service, token: str | None = None, local: bool = True) -> None:
        """`local` services answer only to names of this machine."""
        self._app, self._local = build_app(service), local
        self._token = None if token is None else token.encode()
        self._paths = {getattr(route, "path", "") for route in self._app.routes}
        self.service = service
        self.ending = False
        """Set when the service ends: connections are then closed after their answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        status = 499  # where the client leaves before there is an answer

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *HEADERS]
                # who waits to be asked for the body may send it after an answer, or may not
                if self.ending or b"expect" in headers:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            await (self._refusal(path, headers) or self._app)(scope, receive, answer)
        except Exception:  # the application has already answered with 500
            _logger.exception("a request failed")
        self.service.requests.labels(path if path in self._paths else "other", status).inc()

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Response | None:
        """Returns the answer to a request that may not be answered as it asks."""
        if path in OPEN_PATHS and self._token is not None:
            return None
        host = headers.get(b"host", b"localhost").decode("latin-1").lower()
        if path not in OPEN_PATHS:
            origin = headers.get(b"origin", b"").decode("latin-1").lower().partition("://")[2]
            # no browser sends a token by itself, and then a proxy may have given another name
            foreign = b"origin" in headers and self._token is None and origin != host
            if foreign or headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
                return _problem(403, "pages of other sites may not use this service")
        if self._token is None:
            # a page elsewhere could give its own name this machine's address, and read answers
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not self._local or name in ("localhost", "127.0.0.1", "[::1]"):
                return None
            text = "without --token, a service of this machine answers only to localhost"
            return _problem(421, text)
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        text = "this service asks for its token: send 'Authorization: Bearer TOKEN'"
        return _problem(401, text, {"www-authenticate": "Bearer"})


class Connection(H11Protocol):
    """A connection with time limits.

    uvicorn waits as long as it takes for the head of a request, and for a client to take its
    answer; here, both have a time limit. The body of a request has its own, where it is read.

    There is a number of connections at most. One more takes the place of the one that has let the
    service wait longest, of the address that has most of those: slow senders hold no place that
    others need."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds, self._since = seconds, self.loop.time()
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self._seconds, transport.abort)
        others = [each for each in self.connections if isinstance(each, Connection)]
        if len(others) <= MOST_CONNECTIONS:
            return
        senders = [each for each in others if each is not self and each._is_sending()]
        if not senders:
            transport.write(_BUSY)
            transport.close()
            return
        held = Counter(each.client and each.client[0] for each in senders)
        most = max(senders, key=lambda one: (held[one.client and one.client[0]], -one._since))
        most.transport.abort()

    def _is_sending(self) -> bool:
        """Whether a request is still to come, or the rest of one."""
        incomplete = not self._in_work() or self.cycle.more_body
        return incomplete and not self.transport.is_closing()

    def _in_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after the answer has begun
            self.transport.abort()
        if self._in_work():
            self._deadline.cancel()

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that sends no more still gets the answer to what it sent."""
        self._half_closed = self._in_work() and not self.cycle.more_body
        return self._half_closed

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self._deadline.cancel()
        self._deadline = self.loop.call_later(self._seconds, self.transport.abort)
        super().on_response_complete()
        if self._half_closed and not self._in_work():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening address, or raise with the reason why there is none."""
    if not 0 <= port <= 65535:
        raise UnseenError(f"there is no port {port}; choose another --port, up to 65535")
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=kind, backlog=1024)
    except OSError as error:
        raise UnseenError(
            f"cannot listen on {host} port {port} ({error}); choose another --port or --host"
        ) from error


def is_local(listening: socket.socket) -> bool:
    """Returns whether only this machine can reach the address."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def run_server(guard: Guard, listening: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve, and return the exit code: 0 after a signal and all answers, 1 where a second Ctrl+C
    cut them off."""
    # glibc raises the size from which freed blocks go back to the system whenever one is freed:
    # after some large images, a service would keep the memory of all its threads. Fixed, it stays
    # flat; some megabytes of small blocks stay, so that they are not asked for with every image.
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 2**20)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**24)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    seconds = guard.service.limits.read_seconds
    config = uvicorn.Config(
        guard,
        http=partial(Connection, seconds),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(2 * seconds)),
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_start()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            guard.ending = True
            await asyncio.sleep(LAST_SECONDS)
            await super().shutdown(sockets)

    server = Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # raised again by uvicorn when it has ended
        signal.signal(number, lambda *_: None)
    server.run([listening])
    return 1 if server.force_exit else 0
