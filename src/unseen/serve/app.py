"""Paths of the service and what each of them answers."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from unseen.reports.rendering import style
from unseen.serve.drift import DriftReport
from unseen.serve.requests import Refusal
from unseen.serve.server import Guard
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
OPEN_PATHS = ("/health", "/openapi.json", *PAGES)
"""Paths that need no token: they hold nothing of model or images."""
Probabilities = dict[str, float]


class Problem(BaseModel):
    """Why a request was refused, and what to do about it."""

    problem: str


class ImagePrediction(BaseModel):
    """The prediction for one image, or the reason why there is none."""

    image: str = Field(description="file name as it was sent, or 'image 1', 'image 2', ...")
    predicted: str | None = Field(None, alias="class", description="the most likely class")
    confidence: float | None = Field(None, description="probability of that class")
    probabilities: Probabilities | None = Field(None, description="probability of every class")
    opinions: dict[str, Probabilities] | None = Field(
        None, description="probabilities as if the image came from each training domain"
    )
    disagreement: float | None = Field(
        None, description="how far the opinions lie apart, from 0 to 1"
    )
    outlier_score: float | None = Field(
        None, description="share of the validation images that are more usual, from 0 to 1"
    )
    closest_domain: str | None = Field(
        None, description="training domain whose images look most like this one"
    )
    most_unusual: str | None = Field(
        None, description="what can be measured on the image and is the least like there"
    )
    problem: str | None = Field(None, description="why there is no prediction for this image")


class ImagePredictions(BaseModel):
    """One entry for each image, in the order in which they were sent."""

    images: list[ImagePrediction]
    calibrated: bool = Field(description="whether a temperature was fitted on validation images")
    temperature: float = Field(description="scores are divided by it before the softmax")


class ModelFacts(BaseModel):
    """Facts about the model."""

    name: str
    classes: list[str]
    domains: list[str] = Field(description="the domains it was trained on")
    image_size: int
    has_opinions: bool
    calibrated: bool
    temperature: float
    card: str | None = Field(description="the model card, as Markdown")
    limits: dict[str, float]
    keeps_images: bool = Field(description="whether images and predictions are stored")


class Health(BaseModel):
    """The service answers; `waiting` images are in work."""

    status: str
    waiting: int


_REQUEST_BODY = {
    "required": True,
    "content": {
        kind: {
            "schema": {
                "type": "object",
                "required": ["images"],
                "properties": {
                    "images": {"type": "array", "items": {"type": "string", "format": form}}
                },
            }
        }
        for kind, form in (("multipart/form-data", "binary"), ("application/json", "byte"))
    },
}
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": about}
    for status, about in {
        401: "the token is missing or wrong",
        408: "the request did not arrive in time",
        413: "too many bytes, images or pixels",
        415: "not a kind of request or image that can be read",
        422: "a damaged body, or no readable image in it",
        503: "busy: try again after the seconds in Retry-After",
    }.items()
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
    for path, name in PAGES.items():
        _add_page(app, path, name)
    _add_problems(app)
    return Guard(app, service, OPEN_PATHS, token, local)


def _add_page(app: FastAPI, path: str, name: str) -> None:
    text = (_FILES / name).read_text(encoding="utf-8")
    kind = name.rpartition(".")[2]
    if kind == "css":  # the report's look, and what is only here
        text = style() + text

    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return Response(text, media_type=f"{_KINDS[kind]}; charset=utf-8")


def _add_paths(app: FastAPI, service: Service) -> None:
    @app.post(
        "/predict",
        summary="Classes of one or many images",
        response_model=ImagePredictions,
        responses=_REFUSALS,
        openapi_extra={"requestBody": _REQUEST_BODY},
    )
    async def predict(request: Request) -> Response:
        """Send images as multipart/form-data (one file or many, the names of the fields do not
        matter) or as JSON with base64. An unreadable image gets a `problem` of its own; the answer
        is 4xx only if no image could be read."""
        return await service.predict(request)

    @app.get("/health", summary="Whether the service answers")
    async def health() -> Health:
        return Health(status="ok", waiting=service.waiting)

    @app.get("/model", summary="Classes, training domains and the model card")
    async def model() -> ModelFacts:
        predictor = service.predictor
        return ModelFacts(
            name=service.name,
            classes=predictor.classes,
            domains=predictor.domains,
            image_size=predictor.image_size,
            has_opinions=predictor.has_opinions,
            card=service.card,
            limits=asdict(service.limits),
            keeps_images=service.keeper is not None,
            **service.calibration(),
        )

    @app.get(
        "/drift",
        summary="Whether the last images are like the validation images",
        response_model_exclude_none=True,
    )
    async def drift() -> DriftReport:
        return await service.in_thread(service.watch.report)

    @app.get("/metrics", summary="Counts for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        return Response(await service.metrics_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _add_problems(app: FastAPI) -> None:
    """Give every mistake the same form; none shows the inside of the program."""

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
