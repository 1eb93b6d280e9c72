"""The paths of the service, and the guard before them: who may ask, and what every answer
carries."""

import asyncio
import contextlib
import hmac
import logging
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from unseen.reports.page.parts import style
from unseen.serve.service import Service

_FILES = Path(__file__).with_name("page")
PAGES = {
    "/": "page.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/docs": "docs.html",
    "/docs.js": "docs.js",
    "/openapi.json": "openapi.json",
}
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
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_logger = logging.getLogger("unseen.service")


def build_app(service: Service, token: str | None = None, local: bool = True) -> "Guard":
    """The application behind its guard; `local` where only this machine can reach it."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with service.running():
            yield

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "waiting": service.waiting})

    async def model(_: Request) -> Response:
        return JSONResponse(_facts(service))

    async def drift(_: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(service.watch.report))

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, service.metrics)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    routes = [Route("/predict", service.predict, methods=["POST"])]
    routes += [Route(f"/{each.__name__}", each) for each in (health, model, drift, metrics)]
    routes += [Route(path, _page(name)) for path, name in PAGES.items()]
    problems = {HTTPException: _refused, Exception: _failed}
    app = Starlette(routes=routes, exception_handlers=problems, lifespan=lifespan)
    return Guard(app, service, token, local)


def _page(name: str) -> Callable[[Request], Awaitable[Response]]:
    text = (_FILES / name).read_text(encoding="utf-8")
    kind = mimetypes.types_map[Path(name).suffix]
    if kind == "text/css":  # the report's look, and what is only here
        text = style() + text

    async def page(_: Request) -> Response:
        return Response(text, media_type=f"{kind}; charset=utf-8")

    return page


def _facts(service: Service) -> dict[str, Any]:
    predictor = service.predictor
    return {
        "name": service.name,
        "classes": predictor.classes,
        "domains": predictor.domains,
        "image_size": predictor.image_size,
        "has_opinions": predictor.has_opinions,
        "has_heatmaps": predictor.has_heatmaps,
        "card": service.card,
        "limits": asdict(service.limits),
        "keeps_images": service.keeper is not None,
        **service.calibration(),
    }


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problems = {404: "there is no such page; /docs lists them", 405: "wrong method for this page"}
    text = problems.get(error.status_code, error.detail)
    return _problem(error.status_code, text, error.headers)


async def _failed(_: Request, __: Exception) -> Response:
    """Show nothing of the inside of the program."""
    return _problem(500, "the service failed; its log says why")


class Guard:
    """Pure ASGI around the application, so that nothing passes it."""

    def __init__(self, app: Starlette, service: Service, token: str | None, local: bool) -> None:
        """`local` services answer only to names of this machine."""
        self._app, self._service, self._local = app, service, local
        self._token = None if token is None else token.encode()
        self._paths = {getattr(route, "path", "") for route in app.routes}
        self.limits = service.limits
        self.ending = False
        """Set when the service ends: connections are then closed after their answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope, receive, send)
        try:
            answer = self._refusal(scope["path"], exchange.headers) or self._app
            await answer(scope, exchange.receive, exchange.send)
        except Exception:  # the application has already answered with 500
            _logger.exception("a request failed")
        path = scope["path"] if scope["path"] in self._paths else "other"
        self._service.requests.labels(path, exchange.status).inc()

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Response | None:
        """Returns the answer to a request that may not be answered as it asks."""
        if path in OPEN_PATHS and self._token is not None:
            return None
        host = headers.get(b"host", b"localhost").decode("latin-1").lower()
        if path not in OPEN_PATHS and self._from_elsewhere(host, headers):
            return _problem(403, "pages of other sites may not use this service")
        if self._token is None:
            # a page elsewhere could give its own name this machine's address, and read answers
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if not self._local or name in LOOPBACK:
                return None
            text = "without --token, a service of this machine answers only to localhost"
            return _problem(421, text)
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token):
            return None
        text = "this service asks for its token: send 'Authorization: Bearer TOKEN'"
        return _problem(401, text, {"www-authenticate": "Bearer"})

    def _from_elsewhere(self, host: str, headers: dict[bytes, bytes]) -> bool:
        """Returns whether a browser asks for a page of another site or port. With a token, which no
        browser sends by itself, a proxy may have given the service another name."""
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none"):
            return True
        origin = headers.get(b"origin")
        if origin is None or self._token is not None:
            return False
        return origin.decode("latin-1").lower().partition("://")[2] != host


def _problem(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"problem": text}, status, headers)


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
        left = self._guard.limits.max_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(5.0, self._guard.limits.read_seconds)):
                while self._unread and not self._held_back and left > 0:
                    message = await self.receive()
                    left -= len(message.get("body", b""))
