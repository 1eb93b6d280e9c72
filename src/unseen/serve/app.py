"""Paths of the service and what each of them answers."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from unseen.reports.rendering import style
from unseen.serve.answers import Answers, Health, ModelFacts, Problem, as_json
from unseen.serve.drift import DriftReport
from unseen.serve.guard import Access, Guard
from unseen.serve.limits import Refusal
from unseen.serve.service import Service

_FILES = Path(__file__).with_name("page")
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
PAGES = {
    "/": "page.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/docs": "docs.html",
    "/docs.js": "docs.js",
}
"""Need no token: they hold nothing of model or images."""


def add_pages(app: FastAPI) -> None:
    for path, name in PAGES.items():
        app.get(path, include_in_schema=False)(_sender(name))


def _sender(name: str):
    text = (_FILES / name).read_text(encoding="utf-8")
    kind = name.rpartition(".")[2]
    if kind == "css":  # the report's look, and what is only here
        text = style() + text
    media_type = f"{_KINDS[kind]}; charset=utf-8"

    async def send() -> Response:
        return Response(text, media_type=media_type)

    return send


OPEN_PATHS = ("/health", "/openapi.json", *PAGES)
"""Need no token: they tell nothing about model or images."""

_REQUEST_BODY = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "properties": {
                    "images": {"type": "array", "items": {"type": "string", "format": "binary"}}
                },
            }
        },
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["images"],
                "properties": {
                    "images": {
                        "type": "array",
                        "items": {"type": "string", "format": "byte", "description": "base64"},
                    }
                },
            }
        },
    },
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "the token is missing or wrong"},
    408: {"model": Problem, "description": "the request did not arrive in time"},
    413: {"model": Problem, "description": "too many bytes, images or pixels"},
    415: {"model": Problem, "description": "not a kind of request or image that can be read"},
    422: {"model": Problem, "description": "a damaged body, or no readable image in it"},
    503: {"model": Problem, "description": "busy: try again after the seconds in Retry-After"},
}


def build_app(service: Service, token: str | None = None, local: bool = True) -> Guard:
    """The application behind its guard; `local` where only this machine can reach it."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="unseen",
        version="1",
        description="Classes of images, with probabilities and what each domain would say.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_paths(app, service)
    add_pages(app)
    _add_problems(app)
    return Guard(app, service.metrics, service.limits, Access(token, OPEN_PATHS, local))


def _add_paths(app: FastAPI, service: Service) -> None:
    @app.post(
        "/predict",
        summary="Classes of one or many images",
        response_model=Answers,
        responses=_REFUSALS,
        openapi_extra={"requestBody": _REQUEST_BODY},
    )
    async def predict(request: Request) -> Response:
        """Send images as multipart/form-data (one file or many, the names of the fields do not
        matter) or as JSON with base64. An unreadable image gets a `problem` of its own; the answer
        is 4xx only if no image could be read."""
        return await service.predict(request)

    @app.get("/health", summary="Whether the service answers", response_model=Health)
    async def health() -> Response:
        return JSONResponse({"status": "ok", "waiting": service.waiting})

    @app.get("/model", summary="Classes, training domains and the model card")
    async def model() -> ModelFacts:
        return service.model_facts()

    @app.get(
        "/drift",
        summary="Whether the last images are like the validation images",
        response_model=DriftReport,
    )
    async def drift() -> Response:
        return Response(as_json(await service.drift()), media_type="application/json")

    @app.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(await service.metrics_text(), media_type=kind)


def _add_problems(app: FastAPI) -> None:
    """Every mistake has the same form, and none shows the inside of the program."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        after = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        return JSONResponse({"problem": error.problem}, error.status, after)

    @app.exception_handler(HTTPException)
    async def wrong_path(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        problem = {
            404: "there is no such page; /docs lists them",
            405: "wrong method for this page",
        }
        text = problem.get(error.status_code, str(error.detail))
        return JSONResponse({"problem": text}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return JSONResponse({"problem": "the service failed; its log says why"}, 500)
