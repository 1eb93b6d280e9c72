"""Templates, style and script of web pages that are one file and fetch nothing."""

import base64
import hashlib
from pathlib import Path
from typing import Any

from markupsafe import Markup

from unseen.atomic import atomic_file
from unseen.reports.figures.svg import STYLE

TEMPLATES = Path(__file__).parent / "page" / "templates"


def render_page(template: Path, content: dict[str, Any]) -> str:
    """Returns the page as text. All that is not a template's own is escaped."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader([template.parent, TEMPLATES]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda part: type(part).__name__
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    look = {
        "style": Markup(style()),
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return environment.get_template(template.name).render(content | look)


def style() -> str:
    """Returns the look of the pages, for others that should look the same."""
    parts = (STYLE / "palette.css", STYLE / "figure.css", TEMPLATES / "page.css")
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def write_whole(path: Path, text: str) -> None:
    """Writes a page; a name with bytes that are no text is shown with question marks."""
    with atomic_file(path) as part:
        part.write_bytes(text.encode("utf-8", "replace"))
