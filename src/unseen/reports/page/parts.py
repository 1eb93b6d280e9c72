"""What sections of the page are made of, and how a page is rendered: one file that fetches
nothing. The templates know how each part looks."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from unseen.atomic import atomic_file
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.svg import STYLE, paper_style
from unseen.reports.text import MISSING

TEMPLATES = Path(__file__).parent / "templates"


class PageCell(NamedTuple):
    text: str
    value: float | str | None = None
    """What the column is sorted by; numbers are set to the right."""
    best: bool = False
    tip: str = ""


class PageRow(NamedTuple):
    """A row is hidden with any of its `tags`; `color` is a place in the palette."""

    cells: tuple[PageCell, ...]
    tags: tuple[str, ...] = ()
    color: int | None = None


@dataclass(frozen=True)
class PageTable:
    title: str
    header: tuple[str, ...]
    rows: tuple[PageRow, ...]
    notes: tuple[str, ...] = ()
    downloads: tuple[tuple[str, str, str], ...] = ()
    """Label, name of the file and address of each."""
    foot: tuple[PageRow, ...] = ()
    """Rows that stay below the others however these are sorted."""
    rule: str | None = None
    """The selection rule that it belongs to: it shows while that one is chosen."""


@dataclass(frozen=True)
class Fold:
    """Parts that show when one asks for them, or text to copy as it is."""

    title: str
    parts: "tuple[Part, ...]" = ()
    open: bool = False
    code: str = ""
    rule: str | None = None


Part = Figure | PageTable | Fold | str
"""A text is a note."""


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    lead: str
    parts: tuple[Part, ...]


def first_and_folded(title: str, parts: Sequence[Part]) -> list[Part]:
    """Returns the first part, and the others folded under a title."""
    return [*parts[:1], *([Fold(title, tuple(parts[1:]))] if parts[1:] else [])]


def under_rule(rule: str, parts: Iterable[Part]) -> Iterator[Part]:
    """Yields the parts of a selection rule, figures under names of their own."""
    for part in parts:
        if isinstance(part, Figure):
            yield replace(part, rule=rule, name=f"{part.name}_{rule}")
        elif isinstance(part, Fold):
            yield replace(part, rule=rule, parts=tuple(under_rule(rule, part.parts)))
        else:
            yield part if isinstance(part, str) else replace(part, rule=rule)


def page_row(
    *values: PageCell | str | int | None, tags: tuple[str, ...] = (), color: int | None = None
) -> PageRow:
    """Makes a row of cells, texts and numbers as they are; None is a number that is missing."""
    cells = [PageCell(MISSING) if value is None else value for value in values]
    made = (each if isinstance(each, PageCell) else PageCell(str(each), each) for each in cells)
    return PageRow(tuple(made), tags, color)


def number(value: float | None, text: str) -> PageCell | None:
    """Returns a number as a cell, such as `number(0.5, ".1f")`; None stays None."""
    return None if value is None else PageCell(format(value, text), value)


def capital(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[0].upper() + text[1:]


def render_page(template: Path, content: dict[str, Any]) -> str:
    """Returns the page as text. All that is not a template's own is escaped."""
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader([template.parent, TEMPLATES])
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kind"] = lambda part: type(part).__name__
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    look = {
        "style": Markup(style()),
        "paper_style": Markup(paper_style()),
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
