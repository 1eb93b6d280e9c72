"""The process that serves: how many clients there may be, and how long each may take. It runs until
it is told to end, and then finishes what was accepted."""

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unseen.errors import UnseenError
from unseen.serve.app import Guard

MOST_CONNECTIONS = 512
LAST_SECONDS = 0.3
"""The time after the signal in which requests that were already sent still arrive."""
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_M_MMAP_THRESHOLD = -3


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
