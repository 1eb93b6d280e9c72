"""Between the network and the application: who may ask, what every answer carries, how long a
client may take; runs until it is told to end, and then finishes what was accepted."""

import asyncio
import contextlib
import ctypes
import hmac
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from unseen.errors import UnseenError
from unseen.serve.service import Service

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
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MOST_CONNECTIONS = 512
LAST_SECONDS = 0.3
"""The time after the signal in which requests that were already sent still arrive."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_M_MMAP_THRESHOLD = -3
_logger = logging.getLogger("unseen.service")


class Guard:
    """Pure ASGI around the application, so that nothing passes it."""

    def __init__(
        self,
        app: Starlette,
        service: Service,
        open_paths: Collection[str],
        token: str | None,
        local: bool,
    ) -> None:
        """`open_paths` need no token; `local` services answer only to names of this machine."""
        self._app, self._service, self._open_paths = app, service, open_paths
        self._token = None if token is None else token.encode()
        self._local = local
        self._paths = {getattr(route, "path", "") for route in app.routes}
        self.limits = service.limits
        self.ending = False
        """Set when the service ends: connections are then closed after their answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        refused = self._refusal(scope["path"], exchange.headers)
        try:
            if refused is None:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                status, problem = refused
                login = {"www-authenticate": "Bearer"} if status == 401 else None
                answer = JSONResponse({"problem": problem}, status, login)
                await answer(scope, exchange.receive, exchange.send)
        except Exception:  # the application has already answered with 500
            _logger.exception("a request failed")
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._service.requests.labels(path, exchange.status).inc()

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Returns the status and the problem where a request may not be answered."""
        if path in self._open_paths and self._token is not None:
            return None
        if headers.get(b"sec-fetch-site") == b"cross-site" and path not in self._open_paths:
            return 403, "pages of other sites may not use this service"
        if self._token is None:
            # a page elsewhere could give its own name this machine's address, and read answers
            host = headers.get(b"host", b"localhost").decode("latin-1").lower()
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not self._local or name in LOOPBACK:
                return None
            return 421, "without --token, a service of this machine answers only to localhost"
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        return 401, "this service asks for its token: send 'Authorization: Bearer TOKEN'"


class _Exchange:
    """One request and its answer: knows how much of the request is still to come."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._receive, self._send = guard, receive, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status = 499  # where the client leaves before there is an answer
        length = self.headers.get(b"content-length", b"0")
        self._unread = b"transfer-encoding" in self.headers or length != b"0"
        self._held_back = b"expect" in self.headers  # the client waits to be asked for the body

    async def receive(self) -> Message:
        self._held_back = False
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._discard()
            self.status = message["status"]
            headers = [*message.get("headers", []), *HEADERS]
            if self._unread or self._guard.ending:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def _discard(self) -> None:
        """Read what is left of a refused request, within bounds: a client that is still sending
        when its connection closes does not see the answer."""
        left = self._guard.limits.bytes
        try:
            async with asyncio.timeout(min(5.0, self._guard.limits.read_seconds)):
                while self._unread and not self._held_back and left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


class Connection(H11Protocol):
    """A connection with time limits.

    uvicorn waits as long as it takes for the head of a request, and for a client to take its
    answer; here, both have a time limit, and there is a number of connections at most.

    The body of a request has its own limit, where it is read."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds = seconds
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(_BUSY)
            transport.close()
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after the answer has begun
            self.transport.abort()
        if self._in_work():
            self._stop_waiting()
        elif self._deadline is None:
            self._wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _in_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self._seconds, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


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


def is_local(host: str) -> bool:
    """Returns whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def run_server(guard: Guard, listening: socket.socket, on_start: Callable[[], None]) -> int:
    """Serve, and return the exit code: 0 after a signal and all answers, 1 where a second signal
    cut them off."""
    # glibc raises the size from which freed blocks go back to the system whenever one is freed:
    # after some large images, a service would keep the memory of all its threads. Fixed, it stays
    # flat.
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, 512 * 1024)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    seconds = guard.limits.read_seconds
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
    server = _Server(config, guard, on_start)
    server.run([listening])
    return 1 if server.force_exit else 0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, guard: Guard, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._guard, self._on_start = guard, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do as uvicorn does, but end the process with an exit code, not by the signal."""
        before = {
            number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, *_: object) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._guard.ending = True
        await asyncio.sleep(LAST_SECONDS)
        await super().shutdown(sockets)
