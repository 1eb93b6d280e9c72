"""Charts on axes: rows of bars or dots, curves over training steps, and maps of points."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from markupsafe import Markup

from unseen.reports.figures import svg
from unseen.reports.figures.svg import WIDTH, Drawing, Key

_ROW, _TOP, _FOOT = 24, 6, 20
_HEIGHT = 196  # of a panel with curves, and the edges of its frame
_LEFT, _RIGHT, _UPPER, _LOWER = 42, WIDTH - 10, 8, _HEIGHT - 34
_BOLD = 6.8  # width of a letter of the numbers beside rows
_NAMED = 12  # lines that the description of a panel names

Place = Callable[[float], float]
"""Maps a value to its place in the drawing."""
Points = tuple[tuple[float, float], ...]


class Axis(NamedTuple):
    low: float
    high: float
    label: str = ""

    def ticks(self, about: int = 5) -> list[float]:
        """Returns round numbers within it, roughly as many as asked for."""
        span = self.high - self.low
        if not 0 < span < math.inf:
            return [self.low]
        magnitude = 10.0 ** math.floor(math.log10(span / about))
        step = next(f for f in (1, 2, 2.5, 5, 10, 20) if f * magnitude >= span / about) * magnitude
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def scale(self, start: float, end: float) -> Place:
        """Returns what maps the axis to `start .. end`; what lies outside stays outside."""
        span = (self.high - self.low) or 1.0
        return lambda value: start + (value - self.low) / span * (end - start)


def axis_around(values: Iterable[float], label: str = "", floor: float | None = None) -> Axis:
    """Makes an axis around the finite values with a little room; it starts at `floor` if given."""
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Axis(low - room if floor is None else floor, high + room, label)


def short(value: float) -> str:
    """Returns a tick's number without needless digits: 0.25, 40, 1.5k."""
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}" if 1e-12 <= abs(value) < 1000 else f"{value:.0f}"


def _inside(place: float, one: float, other: float) -> float:
    """Returns the place, or the edge that it lies beyond."""
    return min(max(place, min(one, other)), max(one, other))


class Mark(NamedTuple):
    """A value with its interval; hollow dots tell two kinds apart."""

    name: str
    value: float
    half_width: float | None = None
    look: Literal["bar", "dot", "hollow"] = "dot"
    interval: tuple[float, float] | None = None
    """Low and high where these are not as far from the value as each other."""


class ChartRow(NamedTuple):
    """Marks side by side, those of one row joined; none: there is no result. `points` are the
    values of single seeds, `tags` what can hide the row."""

    label: str
    color: int
    marks: tuple[Mark, ...]
    text: str = ""
    tags: tuple[str, ...] = ()
    points: tuple[float, ...] = ()


def row_chart(title: str, rows: Sequence[ChartRow], axis: Axis, zero: bool = False) -> Drawing:
    """Draws rows on one axis, labels on the left and numbers on the right; `zero` draws the line of
    no difference."""
    left = svg.label_width((row.label for row in rows), 128)
    right = WIDTH - max(max((len(row.text) for row in rows), default=0) * _BOLD + 8, 12)
    scale, bottom = axis.scale(left, right), _TOP + len(rows) * _ROW
    drawn: list[Markup] = []
    for tick in axis.ticks(4):
        drawn.append(svg.line(scale(tick), _TOP, scale(tick), bottom, "grid"))
        drawn.append(svg.text(scale(tick), bottom + 14, short(tick), "tick middle"))
    if axis.label:
        place = (left + right) / 2, bottom + _FOOT + 8
        drawn.append(svg.text(*place, axis.label, "tick middle"))
    if zero:
        drawn.append(svg.line(scale(0), _TOP, scale(0), bottom, "zero"))
    told = []
    for number, row in enumerate(rows):
        middle = _TOP + (number + 0.5) * _ROW
        name = svg.fitted(row.label, left - 6)
        drawn.append(svg.text(left - 6, middle + 4, name, "label end", row.label))
        marks = _row_marks(row, scale, left, right, middle)
        drawn.append(svg.group(marks, "row", row.color, row.tags))
        values = ", ".join(f"{mark.name} {mark.value:.1f}" for mark in row.marks)
        told.append(f"{row.label} {row.text or values or 'no result'}")
    height = bottom + _FOOT + (12 if axis.label else 0)
    return svg.drawing("rows", WIDTH, height, title, "; ".join(told), drawn)


def _row_marks(
    row: ChartRow, scale: Place, left: float, right: float, middle: float
) -> Iterator[Markup]:
    if not row.marks:
        yield svg.text(left + 4, middle + 4, "no result", "tick")
        return
    if len(row.marks) > 1:
        ends = [scale(mark.value) for mark in row.marks]
        yield svg.line(min(ends), middle, max(ends), middle, "joined")
    tips = []
    for mark in row.marks:
        bar, place, half = mark.look == "bar", scale(mark.value), mark.half_width
        interval = mark.interval if half is None else (mark.value - half, mark.value + half)
        tip = f"{row.label}, {mark.name}: {mark.value:.1f}"
        if bar:
            seeds = ", ".join(f"{point:.1f}" for point in row.points)
            tip = f"{row.label}: {row.text}" + (f" ({seeds})" if len(row.points) > 1 else "")
            tips.append(tip)
            yield svg.rect(left, middle - 8, max(place - left, 0.5), _ROW - 8, "fill", tip)
        elif interval:
            tip += f" ± {half:.1f}" if half is not None else ", {:.0f} to {:.0f}".format(*interval)
        if interval:
            look, ends = "whisker" if bar else "whisker own", [scale(end) for end in interval]
            low, high = (_inside(end, left, right) for end in ends)
            yield svg.line(low, middle, high, middle, look)
            for end in ends:
                if end == _inside(end, left, right):  # where it is cut, it has no cap
                    yield svg.line(end, middle - 4, end, middle + 4, look)
        if bar:
            for point in row.points if len(row.points) > 1 else ():
                yield svg.circle(scale(point), middle, 1.8, "seed")
        else:
            yield svg.circle(place, middle, 5, "hollow" if mark.look == "hollow" else "fill", tip)
    yield svg.text(right + 6, middle + 4, row.text, "value", "\n".join(tips))


class Line(NamedTuple):
    label: str
    color: int
    points: Points
    dashed: bool = False
    tags: tuple[str, ...] = ()
    half_widths: tuple[float | None, ...] = ()
    """Half of each point's interval; empty: none has one."""
    images: tuple[int, ...] = ()
    """How many images each point stands for: the more, the larger."""


def thinned(points: Sequence[tuple[float, float]], most: int = 80) -> Points:
    """Returns evenly spaced records, the first and the last among them; more cannot be seen."""
    if len(points) <= most:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (most - 1))] for i in range(most))


def curve_axes(lines: Iterable[Line]) -> tuple[Axis, Axis]:
    """Returns one pair for all panels; a loss that explodes does not press the others flat."""
    points = [point for line in lines for point in line.points] or [(1.0, 0.0), (1.0, 1.0)]
    values = sorted(value for _, value in points)
    shares = values[0] >= 0 and values[-1] <= 1
    trimmed = values[: max(1, math.ceil(0.98 * len(values)))]
    high = values if values[-1] < 4 * max(trimmed[-1], 1e-9) else trimmed
    y = axis_around(high, floor=0.0 if values[0] >= 0 and not shares else None)
    return Axis(0, max(max(step for step, _ in points), 1), "step"), y


def curve_chart(
    title: str, lines: Sequence[Line], x: Axis, y: Axis, diagonal: bool = False, dots: bool = False
) -> Drawing:
    """Draws lines in a frame; `diagonal` is where both axes have one value."""
    details = "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
        for line in lines[:_NAMED]
        if line.points
    )
    if len(lines) > _NAMED:
        details += f"; and {len(lines) - _NAMED} more"
    across, up = x.scale(_LEFT, _RIGHT), y.scale(_LOWER, _UPPER)
    drawn: list[Markup] = []
    for tick in y.ticks(4):
        drawn.append(svg.line(_LEFT, up(tick), _RIGHT, up(tick), "grid"))
        drawn.append(svg.text(_LEFT - 5, up(tick) + 4, short(tick), "tick end"))
    drawn += [svg.text(across(t), _LOWER + 14, short(t), "tick middle") for t in x.ticks(5)]
    drawn.append(svg.line(_LEFT, _LOWER, _RIGHT, _LOWER, "axis"))
    drawn.append(svg.text((_LEFT + _RIGHT) / 2, _HEIGHT - 5, x.label, "tick middle"))
    if y.label:
        drawn.append(svg.text(10, (_UPPER + _LOWER) / 2, y.label, "tick middle", angle=-90))
    if diagonal:
        drawn.append(svg.line(_LEFT, _LOWER, _RIGHT, _UPPER, "diagonal"))
    drawn += [_curve(line, across, up, dots) for line in lines if line.points]
    return svg.drawing("curves", WIDTH, _HEIGHT, title, details, drawn)


def _curve(line: Line, x: Place, y: Place, dots: bool) -> Markup:
    """Draws what lies outside at the edge."""
    places = [(x(step), _inside(y(value), _UPPER, _LOWER)) for step, value in line.points]
    drawn = [svg.path(places, line.label)]
    if dots or len(places) == 1 or line.half_widths:
        images = line.images or (0,) * len(places)
        for place, (step, value), count in zip(places, line.points, images, strict=True):
            tip = f"{line.label}: {value:.4g} at {short(step)}"
            radius = 1.5 + 5 * math.sqrt(count / max(images)) if count else 3
            drawn.append(svg.circle(*place, radius, "fill", tip))
    for (step, value), half in zip(line.points, line.half_widths, strict=False):
        if half is not None:
            low, high = (_inside(y(value + sign * half), _UPPER, _LOWER) for sign in (-1, 1))
            drawn.append(svg.line(x(step), low, x(step), high, "whisker own"))
    look = "curve dashed" if line.dashed else "curve"
    counted = [(*point, n) for point, n in zip(line.points, line.images, strict=False)]
    values = counted or line.points
    return svg.group(drawn, look, line.color, line.tags, values=values, data_label=line.label)


class Cloud(NamedTuple):
    label: str
    color: int
    points: np.ndarray
    """`[n, 2]`, each from 0 to 1."""
    hollow: bool = False


def point_map(title: str, clouds: Sequence[Cloud], keys: tuple[Key, ...] = ()) -> Drawing:
    """Draws all circles of a cloud as one path: a tenth of the size of single elements."""
    size = WIDTH - 20
    drawn = [svg.rect(1, 1, WIDTH - 2, size - 2, "frame", rx=4)]
    for cloud in clouds:
        look, r = ("hollow", 2.6) if cloud.hollow else ("fill", 2.2)
        places = np.array([12, size - 12]) + cloud.points * np.array([WIDTH - 24, 24 - size])
        turn = f"a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
        outline = "".join(f"M{x - r:.1f} {y:.1f}{turn}" for x, y in places.tolist())
        shape = svg.element("path", look, cloud.label, d=outline)
        drawn.append(svg.group([shape], "cloud", cloud.color))
    details = "; ".join(f"{len(cloud.points)} of {cloud.label}" for cloud in clouds)
    return svg.drawing("scatter", WIDTH, size, title, details, drawn)._replace(keys=keys)
