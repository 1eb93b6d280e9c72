"""The pages for people: files of this package, which ask no other host for anything."""

from pathlib import Path

from fastapi import FastAPI, Response

from unseen.reports.rendering import style

_FILES = Path(__file__).with_name("files")
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
