"""Stands before the application: who may ask, what every answer carries, and what is counted."""

import asyncio
import hmac
import json
import logging
from collections.abc import Collection, Mapping

from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from unseen.serve.limits import Limits
from unseen.serve.metrics import Metrics

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
_logger = logging.getLogger("unseen.service")


class Guard:
    """Pure ASGI around the application, so that nothing passes it."""

    def __init__(self, app: Starlette, metrics: Metrics, limits: Limits, access: "Access") -> None:
        self._app, self._metrics, self.limits, self._access = app, metrics, limits, access
        self._paths = {getattr(route, "path", "") for route in app.routes}
        self.ending = False
        """Set when the service ends: connections are then closed after their answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        refused = self._access.refusal(scope["method"], scope["path"], exchange.headers)
        try:
            if refused is None:
                await self._app(scope, exchange.receive, exchange.send)
            else:
                await _refuse(exchange, *refused)
        except Exception:  # the application has already answered with 500
            _logger.exception("a request failed")
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._metrics.requests[path, exchange.status] += 1


async def _refuse(exchange: "_Exchange", status: int, problem: str) -> None:
    body = json.dumps({"problem": problem}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await exchange.send({"type": "http.response.start", "status": status, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": body})


class Access:
    """Who may ask for what."""

    def __init__(self, token: str | None, open_paths: Collection[str], local: bool) -> None:
        """`open_paths` need no token; `local` services answer only to names of this machine."""
        self._token = None if token is None else token.encode()
        self._open_paths, self._local = open_paths, local

    def refusal(
        self, method: str, path: str, headers: Mapping[bytes, bytes]
    ) -> tuple[int, str] | None:
        if headers.get(b"sec-fetch-site") == b"cross-site" and path not in self._open_paths:
            return 403, "pages of other sites may not use this service"
        if self._token is None:
            return self._other_name(headers)
        if path in self._open_paths:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        return 401, "this service asks for its token: send 'Authorization: Bearer TOKEN'"

    def _other_name(self, headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
        """A page elsewhere could give its own name this machine's address, and read answers."""
        host = headers.get(b"host", b"localhost").decode("latin-1").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if not self._local or name in LOOPBACK:
            return None
        return 421, "without --token, a service of this machine answers only to localhost"


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
