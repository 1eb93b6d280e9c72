"""The process that serves: how many clients there may be, and how long each may take. It runs until
it is told to end, and then finishes what was accepted."""

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import signal
import socket
from collections import Counter
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
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class Connection(H11Protocol):
    """A connection with time limits.

    uvicorn waits as long as it takes for the head of a request, and for a client to take its
    answer; here, both have a time limit. The body of a request has its own, where it is read.

    There is a number of connections at most. One more takes the place of the one that has let the
    service wait longest, of the address that has most of those: slow senders hold no place that
    others need."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds = seconds
        self._deadline: asyncio.TimerHandle | None = None
        self._since = self.loop.time()
        self._half_closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS and not self._take_place():
            transport.write(_BUSY)
            transport.close()
        self._wait()

    def _take_place(self) -> bool:
        """Close a connection that lets the service wait; False where there is none."""
        others = [each for each in self.connections if isinstance(each, Connection)]
        senders = [each for each in others if each is not self and each._is_sending()]
        if not senders:
            return False
        held = Counter(each._address for each in senders)
        slowest = max(senders, key=lambda each: (held[each._address], -each._since))
        slowest.transport.abort()
        return True

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _is_sending(self) -> bool:
        """Whether a request is still to come, or the rest of one."""
        incomplete = not self._in_work() or self.cycle.more_body
        return incomplete and not self.transport.is_closing()

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

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client that sends no more still gets the answer to what it sent."""
        self._half_closed = self._in_work() and not self.cycle.more_body
        return self._half_closed

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self._wait()
        super().on_response_complete()
        if self._half_closed and not self._in_work():
            self.transport.close()

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
    # flat; some megabytes of small blocks stay, so that they are not asked for with every image.
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, 2**20)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**24)
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
