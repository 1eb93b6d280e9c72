"""Horizontal bars and rows of dots: labels on the left, the number on the right."""

from collections.abc import Iterator

from unseen.reports.figures import shapes
from unseen.reports.figures.panels import Axis, Bar, BarPanel, DotPanel, DotRow
from unseen.reports.figures.scales import Scale, short, ticks
from unseen.reports.figures.shapes import LETTER, WIDTH, described, fitted, label_width

_ROW = 24
_TOP = 6
_FOOT = 20


def draw_bars(panel: BarPanel) -> shapes.Drawing:
    told = "; ".join(f"{bar.label} {bar.text or 'no result'}" for bar in panel.bars)
    scale = _scale(panel.bars, panel.axis)
    rows = (
        shapes.Group(tuple(_bar(bar, scale, _TOP + number * _ROW)), "row", bar.color, bar.tags)
        for number, bar in enumerate(panel.bars)
    )
    drawn = (*_frame(panel.bars, panel.axis, scale), *rows)
    return _drawing(panel, len(panel.bars), "bars", told, drawn)


def draw_dots(panel: DotPanel) -> shapes.Drawing:
    told = "; ".join(
        f"{row.label} {row.text or ', '.join(f'{m.name} {m.value:.1f}' for m in row.marks)}"
        for row in panel.rows
    )
    scale = _scale(panel.rows, panel.axis)
    drawn = list(_frame(panel.rows, panel.axis, scale))
    if panel.zero:
        drawn.append(shapes.Line(scale(0), _TOP, scale(0), _TOP + len(panel.rows) * _ROW, "zero"))
    for number, row in enumerate(panel.rows):
        dots = tuple(_dots(row, scale, _TOP + number * _ROW))
        drawn.append(shapes.Group(dots, "row", row.color, row.tags))
    return _drawing(panel, len(panel.rows), "dots", told, tuple(drawn))


def _drawing(
    panel: BarPanel | DotPanel, rows: int, kind: str, told: str, drawn: tuple[shapes.Shape, ...]
) -> shapes.Drawing:
    height = _TOP + rows * _ROW + _FOOT + (12 if panel.axis.label else 0)
    return shapes.Drawing(WIDTH, height, kind, described(panel.title, told), drawn)


def _scale(rows: tuple[Bar, ...] | tuple[DotRow, ...], axis: Axis) -> Scale:
    left = label_width((row.label for row in rows), 128)
    right = max((len(row.text) for row in rows), default=0) * LETTER + 8
    return Scale(axis.low, axis.high, left, WIDTH - max(right, 12))


def _frame(
    rows: tuple[Bar, ...] | tuple[DotRow, ...], axis: Axis, scale: Scale
) -> Iterator[shapes.Shape]:
    bottom = _TOP + len(rows) * _ROW
    for tick in ticks(axis, 4):
        yield shapes.Line(scale(tick), _TOP, scale(tick), bottom, "grid")
        yield shapes.Text(scale(tick), bottom + 14, short(tick), "tick", "middle")
    if axis.label:
        middle = (scale.start + scale.end) / 2
        yield shapes.Text(middle, bottom + _FOOT + 8, axis.label, "tick", "middle")
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW + _ROW / 2 + 4
        name = fitted(row.label, scale.start - 6)
        yield shapes.Text(scale.start - 6, y, name, "label", "end", row.label)


def _bar(bar: Bar, scale: Scale, top: float) -> Iterator[shapes.Shape]:
    middle = top + _ROW / 2
    if bar.value is None:
        yield shapes.Text(scale.start + 4, middle + 4, "no result", "tick")
        return
    length = max(scale(bar.value) - scale.start, 0.5)
    tip = f"{bar.label}: {bar.text}"
    points = bar.points if len(bar.points) > 1 else ()
    if points:
        tip += " (" + ", ".join(f"{point:.1f}" for point in points) + ")"
    yield shapes.Rect(scale.start, top + 4, length, _ROW - 8, "fill", tip)
    if bar.half_width is not None:
        yield from _whisker(scale, bar.value, bar.half_width, middle, "whisker")
    for point in points:
        yield shapes.Circle(scale(point), middle, 1.8, "seed")
    yield shapes.Text(scale.end + 6, middle + 4, bar.text, "value", tip=tip)


def _dots(row: DotRow, scale: Scale, top: float) -> Iterator[shapes.Shape]:
    middle = top + _ROW / 2
    if len(row.marks) > 1:
        ends = [scale(mark.value) for mark in row.marks]
        yield shapes.Line(min(ends), middle, max(ends), middle, "joined")
    for mark in row.marks:
        spread = ""
        if mark.half_width is not None:
            yield from _whisker(scale, mark.value, mark.half_width, middle, "whisker own")
            spread = f" ± {mark.half_width:.1f}"
        tip = f"{row.label}, {mark.name}: {mark.value:.1f}{spread}"
        yield shapes.Circle(scale(mark.value), middle, 5, "hollow" if mark.hollow else "fill", tip)
    yield shapes.Text(scale.end + 6, middle + 4, row.text, "value")


def _whisker(
    scale: Scale, value: float, half_width: float, middle: float, look: str
) -> Iterator[shapes.Line]:
    """Cut at the edge of the axis, and then without its cap."""
    low, high = scale(value - half_width), scale(value + half_width)
    start, end = max(low, scale.start), min(high, scale.end)
    yield shapes.Line(start, middle, end, middle, look)
    for place, inside in ((start, low >= scale.start), (end, high <= scale.end)):
        if inside:
            yield shapes.Line(place, middle - 4, place, middle + 4, look)
