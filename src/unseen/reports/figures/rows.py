"""Horizontal bars and rows of dots: labels on the left, the number on the right."""

from markupsafe import Markup

from unseen.reports.figures.panels import Axis, Bar, BarPanel, DotPanel, DotRow
from unseen.reports.figures.scales import Scale, short, ticks
from unseen.reports.figures.svg import (
    LETTER,
    WIDTH,
    Drawing,
    described,
    fitted,
    label_width,
    tagged,
)

_ROW = 24
_TOP = 6
_FOOT = 20


def draw_bars(panel: BarPanel) -> Markup:
    told = "; ".join(f"{bar.label} {bar.text or 'no result'}" for bar in panel.bars)
    drawing, scale = _frame(
        [bar.label for bar in panel.bars],
        [bar.text for bar in panel.bars],
        panel.axis,
        described(panel.title, told),
        "bars",
    )
    for number, bar in enumerate(panel.bars):
        drawing.begin(class_=f"row c{bar.color}", data_tags=tagged(bar.tags))
        _bar(drawing, bar, scale, _TOP + number * _ROW)
        drawing.end()
    return drawing.finish()


def draw_dots(panel: DotPanel) -> Markup:
    told = "; ".join(
        f"{row.label} {row.text or ', '.join(f'{m.name} {m.value:.1f}' for m in row.marks)}"
        for row in panel.rows
    )
    drawing, scale = _frame(
        [row.label for row in panel.rows],
        [row.text for row in panel.rows],
        panel.axis,
        described(panel.title, told),
        "dots",
    )
    if panel.zero:
        bottom = _TOP + len(panel.rows) * _ROW
        drawing.line(scale(0), _TOP, scale(0), bottom, "zero")
    for number, row in enumerate(panel.rows):
        drawing.begin(class_=f"row c{row.color}", data_tags=tagged(row.tags))
        _dots(drawing, row, scale, _TOP + number * _ROW)
        drawing.end()
    return drawing.finish()


def _frame(
    labels: list[str], texts: list[str], axis: Axis, description: str, kind: str
) -> tuple[Drawing, Scale]:
    left = label_width(labels, 128)
    right = max((len(text) for text in texts), default=0) * LETTER + 8
    height = _TOP + len(labels) * _ROW + _FOOT + (12 if axis.label else 0)
    drawing = Drawing(WIDTH, height, description, kind)
    scale = Scale(axis.low, axis.high, left, WIDTH - max(right, 12))
    bottom = _TOP + len(labels) * _ROW
    for tick in ticks(axis, 4):
        drawing.line(scale(tick), _TOP, scale(tick), bottom, "grid")
        drawing.text(scale(tick), bottom + 14, short(tick), "tick", "middle")
    if axis.label:
        drawing.text((left + scale.end) / 2, height - 4, axis.label, "tick", "middle")
    for number, label in enumerate(labels):
        y = _TOP + number * _ROW + _ROW / 2 + 4
        drawing.text(left - 6, y, fitted(label, left - 6), "label", "end", tip=label)
    return drawing, scale


def _bar(drawing: Drawing, bar: Bar, scale: Scale, top: float) -> None:
    middle = top + _ROW / 2
    if bar.value is None:
        drawing.text(scale.start + 4, middle + 4, "no result", "tick")
        return
    length = max(scale(bar.value) - scale.start, 0.5)
    tip = f"{bar.label}: {bar.text}"
    if len(bar.points) > 1:
        tip += " (" + ", ".join(f"{point:.1f}" for point in bar.points) + ")"
    drawing.shape(
        "rect", tip, x=scale.start, y=top + 4, width=length, height=_ROW - 8, rx=2, class_="fill"
    )
    if bar.half_width is not None:
        _whisker(drawing, scale, bar.value, bar.half_width, middle)
    if len(bar.points) > 1:
        for point in bar.points:
            drawing.shape("circle", cx=scale(point), cy=middle, r=1.8, class_="seed")
    drawing.text(scale.end + 6, middle + 4, bar.text, "value", tip=tip)


def _dots(drawing: Drawing, row: DotRow, scale: Scale, top: float) -> None:
    middle = top + _ROW / 2
    if len(row.marks) > 1:
        ends = [scale(mark.value) for mark in row.marks]
        drawing.line(min(ends), middle, max(ends), middle, "joined")
    for mark in row.marks:
        if mark.half_width is not None:
            _whisker(drawing, scale, mark.value, mark.half_width, middle)
        spread = f" ± {mark.half_width:.1f}" if mark.half_width is not None else ""
        drawing.shape(
            "circle",
            f"{row.label}, {mark.name}: {mark.value:.1f}{spread}",
            cx=scale(mark.value),
            cy=middle,
            r=5,
            class_="hollow" if mark.hollow else "fill",
        )
    drawing.text(scale.end + 6, middle + 4, row.text, "value")


def _whisker(
    drawing: Drawing, scale: Scale, value: float, half_width: float, middle: float
) -> None:
    """Cut at the edge of the axis, and then without its cap."""
    low, high = scale(value - half_width), scale(value + half_width)
    start, end = max(low, scale.start), min(high, scale.end)
    drawing.line(start, middle, end, middle, "whisker")
    for place, inside in ((start, low >= scale.start), (end, high <= scale.end)):
        if inside:
            drawing.line(place, middle - 4, place, middle + 4, "whisker")
