"""Horizontal bars and rows of dots: labels on the left, the number on the right."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from unseen.reports.figures import svg
from unseen.reports.figures.axes import Axis, Scale, short
from unseen.reports.figures.svg import LETTER, WIDTH, Drawing

_ROW = 24
_TOP = 6
_FOOT = 20


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

    def draw(self) -> Drawing:
        scale = _scale(self.bars, self.axis)
        bars = [
            svg.group(_bar(bar, scale, middle), "row", bar.color, bar.tags)
            for bar, middle in zip(self.bars, _middles(self.bars), strict=True)
        ]
        told = "; ".join(f"{bar.label} {bar.text or 'no result'}" for bar in self.bars)
        return _drawing("bars", svg.described(self.title, told), self.bars, scale, bars)


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

    def draw(self) -> Drawing:
        scale = _scale(self.rows, self.axis)
        drawn = [
            svg.group(_dots(row, scale, middle), "row", row.color, row.tags)
            for row, middle in zip(self.rows, _middles(self.rows), strict=True)
        ]
        if self.zero:
            bottom = _TOP + len(self.rows) * _ROW
            drawn.insert(0, svg.line(scale(0), _TOP, scale(0), bottom, "zero"))
        told = "; ".join(
            f"{row.label} {row.text or ', '.join(f'{m.name} {m.value:.1f}' for m in row.marks)}"
            for row in self.rows
        )
        return _drawing("dots", svg.described(self.title, told), self.rows, scale, drawn)


def _middles(rows: Sequence[object]) -> list[float]:
    return [_TOP + number * _ROW + _ROW / 2 for number in range(len(rows))]


def _scale(rows: Sequence[Bar] | Sequence[DotRow], axis: Axis) -> Scale:
    left = svg.label_width((row.label for row in rows), 128)
    right = max((len(row.text) for row in rows), default=0) * LETTER + 8
    return Scale(axis, left, WIDTH - max(right, 12))


def _drawing(
    kind: str,
    description: str,
    rows: Sequence[Bar] | Sequence[DotRow],
    scale: Scale,
    drawn: Iterable[Markup],
) -> Drawing:
    """The rows on their grid, with the labels."""
    axis, bottom = scale.axis, _TOP + len(rows) * _ROW
    frame = []
    for tick in axis.ticks(4):
        frame.append(svg.line(scale(tick), _TOP, scale(tick), bottom, "grid"))
        frame.append(svg.text(scale(tick), bottom + 14, short(tick), "tick", "middle"))
    if axis.label:
        middle = (scale.start + scale.end) / 2
        frame.append(svg.text(middle, bottom + _FOOT + 8, axis.label, "tick", "middle"))
    for row, y in zip(rows, _middles(rows), strict=True):
        name = svg.fitted(row.label, scale.start - 6)
        frame.append(svg.text(scale.start - 6, y + 4, name, "label", "end", row.label))
    height = bottom + _FOOT + (12 if axis.label else 0)
    return Drawing(WIDTH, height, kind, description, Markup().join([*frame, *drawn]))


def _bar(bar: Bar, scale: Scale, middle: float) -> Iterator[Markup]:
    if bar.value is None:
        yield svg.text(scale.start + 4, middle + 4, "no result", "tick")
        return
    length = max(scale(bar.value) - scale.start, 0.5)
    tip = f"{bar.label}: {bar.text}"
    points = bar.points if len(bar.points) > 1 else ()
    if points:
        tip += " (" + ", ".join(f"{point:.1f}" for point in points) + ")"
    yield svg.rect(scale.start, middle - _ROW / 2 + 4, length, _ROW - 8, "fill", tip)
    if bar.half_width is not None:
        yield from _whisker(scale, bar.value, bar.half_width, middle, "whisker")
    for point in points:
        yield svg.circle(scale(point), middle, 1.8, "seed")
    yield svg.text(scale.end + 6, middle + 4, bar.text, "value", tip=tip)


def _dots(row: DotRow, scale: Scale, middle: float) -> Iterator[Markup]:
    if len(row.marks) > 1:
        ends = [scale(mark.value) for mark in row.marks]
        yield svg.line(min(ends), middle, max(ends), middle, "joined")
    for mark in row.marks:
        spread = ""
        if mark.half_width is not None:
            yield from _whisker(scale, mark.value, mark.half_width, middle, "whisker own")
            spread = f" ± {mark.half_width:.1f}"
        tip = f"{row.label}, {mark.name}: {mark.value:.1f}{spread}"
        look = "hollow" if mark.hollow else "fill"
        yield svg.circle(scale(mark.value), middle, 5, look, tip)
    yield svg.text(scale.end + 6, middle + 4, row.text, "value")


def _whisker(
    scale: Scale, value: float, half_width: float, middle: float, look: str
) -> Iterator[Markup]:
    """Cut at the edge of the axis, and then without its cap."""
    ends = (value - half_width, value + half_width)
    low, high = map(scale.within, ends)
    yield svg.line(low, middle, high, middle, look)
    for end, place in zip(ends, (low, high), strict=True):
        if scale(end) == place:
            yield svg.line(place, middle - 4, place, middle + 4, look)
