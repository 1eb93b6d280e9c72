"""Curves over training steps, and clouds of points."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from unseen.reports.figures import svg
from unseen.reports.figures.axes import Axis, Scale, axis_around, short
from unseen.reports.figures.figure import Key
from unseen.reports.figures.svg import WIDTH, Drawing

_HEIGHT = 196
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, WIDTH - 10, 8, _HEIGHT - 34
_NAMED = 12  # lines that the description of a panel names

Points = tuple[tuple[float, float], ...]


class Line(NamedTuple):
    label: str
    color: int
    points: Points
    dashed: bool = False
    tags: tuple[str, ...] = ()
    half_widths: tuple[float | None, ...] = ()
    """Half of each point's interval; empty: none has one."""


def thinned(points: Sequence[tuple[float, float]], most: int = 80) -> Points:
    """Returns evenly spaced records, the first and the last among them; more cannot be seen."""
    if len(points) <= most:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (most - 1))] for i in range(most))


def curve_axes(lines: Iterable[Line]) -> tuple[Axis, Axis]:
    """Returns one pair for all panels; a loss that explodes does not press the others flat."""
    points = [point for line in lines for point in line.points]
    if not points:
        return Axis(0, 1, "step"), Axis(0, 1)
    values = sorted(value for _, value in points)
    shares = values[0] >= 0 and values[-1] <= 1
    trimmed = values[: max(1, math.ceil(0.98 * len(values)))]
    high = values if values[-1] < 4 * max(trimmed[-1], 1e-9) else trimmed
    y = axis_around(high, floor=0.0 if values[0] >= 0 and not shares else None)
    return Axis(0, max(max(step for step, _ in points), 1), "step"), y


@dataclass(frozen=True)
class CurvePanel:
    title: str
    lines: tuple[Line, ...]
    x: Axis
    y: Axis
    diagonal: bool = False
    dots: bool = False

    def draw(self) -> Drawing:
        details = "; ".join(
            f"{line.label} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
            for line in self.lines[:_NAMED]
            if line.points
        )
        if len(self.lines) > _NAMED:
            details += f"; and {len(self.lines) - _NAMED} more"
        x, y = Scale(self.x, _LEFT, _RIGHT), Scale(self.y, _BOTTOM, _TOP)
        curves = (_curve(line, x, y, self.dots) for line in self.lines if line.points)
        drawn = [*self._frame(x, y), *curves]
        return svg.drawing("curves", WIDTH, _HEIGHT, self.title, details, drawn)

    def _frame(self, x: Scale, y: Scale) -> Iterator[Markup]:
        for tick in self.y.ticks(4):
            yield svg.line(_LEFT, y(tick), _RIGHT, y(tick), "grid")
            yield svg.text(_LEFT - 5, y(tick) + 4, short(tick), "tick", "end")
        for tick in self.x.ticks(5):
            yield svg.text(x(tick), _BOTTOM + 14, short(tick), "tick", "middle")
        yield svg.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
        yield svg.text((_LEFT + _RIGHT) / 2, _HEIGHT - 5, self.x.label, "tick", "middle")
        if self.y.label:
            middle = (_TOP + _BOTTOM) / 2
            yield svg.text(10, middle, self.y.label, "tick", "middle", angle=-90)
        if self.diagonal:
            yield svg.line(_LEFT, _BOTTOM, _RIGHT, _TOP, "diagonal")


def _curve(line: Line, x: Scale, y: Scale, dots: bool) -> Markup:
    """Draws what lies outside at the edge."""
    places = [(x(step), y.within(value)) for step, value in line.points]
    drawn = [svg.path(places, line.label)]
    if dots or len(places) == 1 or line.half_widths:
        for place, (step, value) in zip(places, line.points, strict=True):
            tip = f"{line.label}: {value:.4g} at {short(step)}"
            drawn.append(svg.circle(*place, 3, "fill", tip))
    for (step, value), half in zip(line.points, line.half_widths, strict=False):
        if half is not None:
            drawn += _interval(x(step), y, value - half, value + half)
    look = "curve dashed" if line.dashed else "curve"
    return svg.group(drawn, look, line.color, line.tags, label=line.label, values=line.points)


def _interval(x: float, y: Scale, low: float, high: float) -> Iterator[Markup]:
    """Draws an upright interval with caps; cut at the edge, and then without its cap."""
    yield svg.line(x, y.within(low), x, y.within(high), "whisker own")
    for value in (low, high):
        if y(value) == y.within(value):
            yield svg.line(x - 4, y(value), x + 4, y(value), "whisker own")


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

    def draw(self) -> Drawing:
        size = WIDTH - 20
        frame = svg.rect(1, 1, WIDTH - 2, size - 2, "frame", rounding=4)
        drawn = [frame, *(_cloud(cloud, size) for cloud in self.clouds)]
        details = "; ".join(f"{len(cloud.points)} of {cloud.label}" for cloud in self.clouds)
        return svg.drawing("scatter", WIDTH, size, self.title, details, drawn)


def _cloud(cloud: Cloud, size: float) -> Markup:
    """Draws all circles as one path: a tenth of the size of single elements."""
    look, r = ("hollow", 2.6) if cloud.hollow else ("fill", 2.2)
    places = np.array([12, size - 12]) + cloud.points * np.array([WIDTH - 24, 24 - size])
    turn = f"a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
    outline = "".join(f"M{x - r:.1f} {y:.1f}{turn}" for x, y in places.tolist())
    return svg.group([svg.element("path", look, cloud.label, d=outline)], "cloud", cloud.color)
