"""What a figure shows, apart from how it is drawn: as SVG in the page, by matplotlib for a paper.

A colour is a number: a place in the palette, the same for a method in all figures.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np


class Axis(NamedTuple):
    low: float
    high: float
    label: str = ""
    marks: tuple[float, ...] = ()
    """Where ticks stand; empty: at round numbers."""
    bend: float = 0.0
    """Above 0: even steps up to here, then even factors, so that 0, 0.1, 1 and 10 lie apart."""


class Bar(NamedTuple):
    """One horizontal bar; `points` are the values of single seeds, `tags` what can hide it."""

    label: str
    color: int
    value: float | None
    half_width: float | None
    points: tuple[float, ...] = ()
    text: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class BarPanel:
    title: str
    bars: tuple[Bar, ...]
    axis: Axis


class Mark(NamedTuple):
    """A dot with its interval; hollow dots tell two kinds apart."""

    name: str
    value: float
    half_width: float | None = None
    hollow: bool = False


class DotRow(NamedTuple):
    label: str
    color: int
    marks: tuple[Mark, ...]
    text: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class DotPanel:
    """Rows of dots; those of one row are joined. `zero` draws the line of no difference."""

    title: str
    rows: tuple[DotRow, ...]
    axis: Axis
    zero: bool = False


class Line(NamedTuple):
    label: str
    color: int
    points: tuple[tuple[float, float], ...]
    dashed: bool = False
    tags: tuple[str, ...] = ()
    half_widths: tuple[float | None, ...] = ()
    """Of the points' intervals, one for each; empty: none has one."""


@dataclass(frozen=True)
class CurvePanel:
    title: str
    lines: tuple[Line, ...]
    x: Axis
    y: Axis
    diagonal: bool = False
    dots: bool = False


@dataclass(frozen=True)
class HeatPanel:
    """Values from 0 (pale) to 1 (dark), NaN is left empty; `texts` stand in the cells."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    texts: tuple[tuple[str, ...], ...]
    row_axis: str = ""
    column_axis: str = ""


def number_texts(values: np.ndarray, text: str) -> tuple[tuple[str, ...], ...]:
    """What stands in the cells of a heat map: numbers as `text` says (`.2f`), none for NaN."""
    return tuple(
        tuple("" if np.isnan(value) else format(value, text) for value in row) for row in values
    )


class StripGroup(NamedTuple):
    """Units that are on in the same domains, and how many they are."""

    on: tuple[bool, ...]
    units: int


@dataclass(frozen=True)
class StripPanel:
    title: str
    domains: tuple[str, ...]
    groups: tuple[StripGroup, ...]

    @property
    def width(self) -> int:
        return sum(group.units for group in self.groups)


@dataclass(frozen=True)
class CirclePanel:
    """A grid of circles with the number inside; `high` has the full colour, in another hue where
    a value is negative."""

    title: str
    values: np.ndarray
    high: float
    digits: int = 2


KeyStyle = Literal["area", "line", "dashed", "dot", "hollow"]


class Key(NamedTuple):
    """An entry of the legend."""

    label: str
    color: int
    style: KeyStyle = "area"
    tags: tuple[str, ...] = ()


class Cloud(NamedTuple):
    label: str
    color: int
    points: np.ndarray
    """`[n, 2]`, each from 0 to 1."""
    hollow: bool = False


@dataclass(frozen=True)
class ScatterPanel:
    title: str
    clouds: tuple[Cloud, ...]
    keys: tuple[Key, ...] = ()


class Picture(NamedTuple):
    """An image with a caption; `pixels` are `[height, width, 3]`."""

    pixels: np.ndarray
    caption: str
    description: str


@dataclass(frozen=True)
class SheetPanel:
    title: str
    pictures: tuple[Picture, ...]


Panel = (
    BarPanel
    | DotPanel
    | CurvePanel
    | HeatPanel
    | StripPanel
    | CirclePanel
    | ScatterPanel
    | SheetPanel
)


@dataclass(frozen=True)
class Figure:
    """Panels under one title. `name` is the stem of its files, `about` says how to read it."""

    name: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    legend: tuple[Key, ...] = ()
    rule: str | None = None
    wide: bool = False
