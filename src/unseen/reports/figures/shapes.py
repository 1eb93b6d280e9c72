"""A panel as shapes on a sheet of known size: where things stand is settled here, and a renderer
only says how each look appears (page.css on the page, a table in paper.py for a paper)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from unseen.reports.long_names import shortened

WIDTH = 340  # pixels of a panel; the page shows it near this size, so that letters keep theirs
LETTER = 5.9  # mean width of a letter at 11 pixels

Anchor = Literal["start", "middle", "end"]


class Shade(NamedTuple):
    """From the paper (0) to the full colour (1); negative numbers have their own colour."""

    strength: float
    negative: bool = False


class Rect(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    look: str | Shade
    tip: str = ""
    rounding: float | None = 2


class Circle(NamedTuple):
    x: float
    y: float
    radius: float
    look: str | Shade
    tip: str = ""


class Line(NamedTuple):
    x1: float
    y1: float
    x2: float
    y2: float
    look: str


class Text(NamedTuple):
    x: float
    y: float
    text: str
    look: str
    anchor: Anchor = "start"
    tip: str = ""
    angle: float = 0.0


class Curve(NamedTuple):
    points: tuple[tuple[float, float], ...]
    tip: str


class Dots(NamedTuple):
    """Many circles of one size."""

    points: tuple[tuple[float, float], ...]
    radius: float
    look: str
    tip: str


class Image(NamedTuple):
    x: float
    y: float
    size: float
    pixels: np.ndarray
    tip: str


@dataclass(frozen=True)
class Group:
    """Shapes of one colour that the page hides together; `values` are what it reads out."""

    shapes: "tuple[Shape, ...]"
    look: str = ""
    color: int | None = None
    tags: tuple[str, ...] = ()
    label: str = ""
    values: tuple[tuple[float, float], ...] = ()
    letters: float | None = None
    """The height of numbers in it, where it is not the usual one."""
    at: tuple[float, float] = (0.0, 0.0)


Shape: TypeAlias = Rect | Circle | Line | Text | Curve | Dots | Image | Group


@dataclass(frozen=True)
class Drawing:
    """`description` is for those who do not see it."""

    width: float
    height: float
    kind: str
    description: str
    shapes: tuple[Shape, ...]


def fitted(text: str, width: float) -> str:
    """As much of a text as there is room for."""
    return shortened(text, max(int(width / LETTER), 3))


def label_width(labels: Iterable[str], most: float) -> float:
    return min(max((len(label) for label in labels), default=0) * LETTER + 8, most)


def described(title: str, rest: str) -> str:
    return f"{title}: {rest}" if title else rest
