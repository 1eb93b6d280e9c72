"""Rows of bars or dots: labels on the left, the number on the right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from unseen.reports.figures import svg
from unseen.reports.figures.axes import Axis, Scale, short
from unseen.reports.figures.svg import LETTER, WIDTH, Drawing

_ROW = 24
_TOP = 6
_FOOT = 20


class Mark(NamedTuple):
    """A value with its interval; hollow dots tell two kinds apart."""

    name: str
    value: float
    half_width: float | None = None
    look: Literal["bar", "dot", "hollow"] = "dot"


class PanelRow(NamedTuple):
    """Marks side by side, those of one row joined; none: there is no result. `points` are the
    values of single seeds, `tags` what can hide the row."""

    label: str
    color: int
    marks: tuple[Mark, ...]
    text: str = ""
    tags: tuple[str, ...] = ()
    points: tuple[float, ...] = ()


@dataclass(frozen=True)
class RowPanel:
    """Rows on one axis; `zero` draws the line of no difference."""

    title: str
    rows: tuple[PanelRow, ...]
    axis: Axis
    zero: bool = False

    def draw(self) -> Drawing:
        left = svg.label_width((row.label for row in self.rows), 128)
        right = max((len(row.text) for row in self.rows), default=0) * LETTER + 8
        scale = Scale(self.axis, left, WIDTH - max(right, 12))
        bottom = _TOP + len(self.rows) * _ROW
        drawn = [*self._frame(scale, bottom)]
        if self.zero:
            drawn.append(svg.line(scale(0), _TOP, scale(0), bottom, "zero"))
        for place, row in enumerate(self.rows):
            middle = _TOP + (place + 0.5) * _ROW
            name = svg.fitted(row.label, left - 6)
            drawn.append(svg.text(left - 6, middle + 4, name, "label", "end", row.label))
            drawn.append(svg.group(_marks(row, scale, middle), "row", row.color, row.tags))
        height = bottom + _FOOT + (12 if self.axis.label else 0)
        details = "; ".join(map(_details, self.rows))
        return svg.drawing("rows", WIDTH, height, self.title, details, drawn)

    def _frame(self, scale: Scale, bottom: float) -> Iterator[Markup]:
        for tick in self.axis.ticks(4):
            yield svg.line(scale(tick), _TOP, scale(tick), bottom, "grid")
            yield svg.text(scale(tick), bottom + 14, short(tick), "tick", "middle")
        if self.axis.label:
            middle = (scale.start + scale.end) / 2
            yield svg.text(middle, bottom + _FOOT + 8, self.axis.label, "tick", "middle")


def _details(row: PanelRow) -> str:
    marks = ", ".join(f"{mark.name} {mark.value:.1f}" for mark in row.marks)
    return f"{row.label} {row.text or marks or 'no result'}"


def _marks(row: PanelRow, scale: Scale, middle: float) -> Iterator[Markup]:
    if not row.marks:
        yield svg.text(scale.start + 4, middle + 4, "no result", "tick")
        return
    if len(row.marks) > 1:
        ends = [scale(mark.value) for mark in row.marks]
        yield svg.line(min(ends), middle, max(ends), middle, "joined")
    for mark in row.marks:
        yield from _mark(row, mark, scale, middle)
    tips = [_tip(row, mark) for mark in row.marks if mark.look == "bar"]
    yield svg.text(scale.end + 6, middle + 4, row.text, "value", tip="\n".join(tips))


def _mark(row: PanelRow, mark: Mark, scale: Scale, middle: float) -> Iterator[Markup]:
    place, tip = scale(mark.value), _tip(row, mark)
    whisker = []
    if mark.half_width is not None:
        look = "whisker" if mark.look == "bar" else "whisker own"
        whisker = _whisker(scale, mark.value, mark.half_width, middle, look)
    if mark.look == "bar":
        length = max(place - scale.start, 0.5)
        yield svg.rect(scale.start, middle - _ROW / 2 + 4, length, _ROW - 8, "fill", tip)
        yield from whisker
        for point in row.points if len(row.points) > 1 else ():
            yield svg.circle(scale(point), middle, 1.8, "seed")
    else:
        yield from whisker
        yield svg.circle(place, middle, 5, "hollow" if mark.look == "hollow" else "fill", tip)


def _tip(row: PanelRow, mark: Mark) -> str:
    if mark.look != "bar":
        spread = "" if mark.half_width is None else f" ± {mark.half_width:.1f}"
        return f"{row.label}, {mark.name}: {mark.value:.1f}{spread}"
    seeds = ", ".join(f"{point:.1f}" for point in row.points)
    return f"{row.label}: {row.text}" + (f" ({seeds})" if len(row.points) > 1 else "")


def _whisker(
    scale: Scale, value: float, half_width: float, middle: float, look: str
) -> Iterator[Markup]:
    """Draws an interval with caps; cut at the edge of the axis, and then without its cap."""
    ends = (value - half_width, value + half_width)
    low, high = map(scale.within, ends)
    yield svg.line(low, middle, high, middle, look)
    for end, place in zip(ends, (low, high), strict=True):
        if scale(end) == place:
            yield svg.line(place, middle - 4, place, middle + 4, look)
