"""Heat maps, mask strips, grids of circles, and sheets of images."""

import math
from collections.abc import Iterator
from itertools import accumulate

from unseen.reports.figures import shapes
from unseen.reports.figures.panels import CirclePanel, HeatPanel, SheetPanel, StripPanel
from unseen.reports.figures.scales import short
from unseen.reports.figures.shapes import LETTER, WIDTH, described, fitted, label_width

_DARK = 0.68  # from this shade on, numbers are in the colour of the paper
_DARK_NEGATIVE = 0.8
_STRIP = 22


def draw_heat(panel: HeatPanel, width: float = WIDTH) -> shapes.Drawing:
    rows, columns = len(panel.rows), len(panel.columns)
    margin = 14 if panel.row_axis else 0
    left = label_width(panel.rows, 96) + margin
    top = 4 + (14 if panel.column_axis else 0)
    cell = (width - left - 4) / max(columns, 1)
    height = min(cell, 34) if rows > 1 or columns > 3 else 30
    bottom = top + rows * height
    flat = cell > max((len(name) for name in panel.columns), default=0) * LETTER
    foot = 20 if flat else label_width(panel.columns, 70)
    drawn: list[shapes.Shape] = []
    for i, name in enumerate(panel.rows):
        y = top + i * height
        label = fitted(name, left - 8 - margin)
        drawn.append(shapes.Text(left - 6, y + height / 2 + 4, label, "label", "end", name))
        for j in range(columns):
            drawn += _heat_cell(
                panel, i, j, shapes.Rect(left + j * cell, y, cell - 1, height - 1, "")
            )
    for j, name in enumerate(panel.columns):
        x = left + (j + 0.5) * cell
        if flat:
            drawn.append(shapes.Text(x, bottom + 14, name, "label", "middle"))
        else:
            drawn.append(
                shapes.Text(x + 4, bottom + 8, fitted(name, 64), "label", "end", name, -60)
            )
    if panel.column_axis:
        drawn.append(
            shapes.Text(left + columns * cell / 2, 12, panel.column_axis, "tick", "middle")
        )
    if panel.row_axis:
        y = top + rows * height / 2
        drawn.append(shapes.Text(10, y, panel.row_axis, "tick", "middle", angle=-90))
    told = described(panel.title, _heat_text(panel))
    return shapes.Drawing(width, bottom + foot, "heat", told, tuple(drawn))


def _heat_cell(panel: HeatPanel, i: int, j: int, place: shapes.Rect) -> Iterator[shapes.Shape]:
    value = float(panel.values[i, j])
    if math.isnan(value):
        return
    text = panel.texts[i][j]
    tip = f"{panel.rows[i]}, {panel.columns[j]}: {text}"
    yield place._replace(look=shapes.Shade(value), tip=tip)
    if place.width + 1 > len(text) * 5.2 and place.height > 9:
        look = "cell inverse" if value >= _DARK else "cell"
        y = place.y + (place.height + 1) / 2 + 3.5
        yield shapes.Text(place.x + place.width / 2, y, text, look, "middle")


def _heat_text(panel: HeatPanel) -> str:
    if panel.values.size > 60:
        return f"{len(panel.rows)} rows, {len(panel.columns)} columns"
    return "; ".join(
        f"{row}, {column}: {text}"
        for row, texts in zip(panel.rows, panel.texts, strict=True)
        for column, text in zip(panel.columns, texts, strict=True)
        if text
    )


def draw_strips(panel: StripPanel) -> shapes.Drawing:
    told = "; ".join(f"{g.units} units in {_where(panel, g.on)}" for g in panel.groups)
    height = len(panel.domains) * _STRIP + 24
    drawn = tuple(_strip_shapes(panel, height))
    return shapes.Drawing(WIDTH, height, "strips", described(panel.title, told), drawn)


def _strip_shapes(panel: StripPanel, height: float) -> Iterator[shapes.Shape]:
    left = label_width(panel.domains, 110)
    scale = (WIDTH - left - 4) / max(panel.width, 1)
    for d, domain in enumerate(panel.domains):
        label = fitted(domain, left - 6)
        yield shapes.Text(left - 6, d * _STRIP + 15, label, "label", "end", domain)
    starts = [0, *accumulate(group.units for group in panel.groups)]
    for start, group in zip(starts, panel.groups, strict=False):
        kind = ("none", "one", "some", "all")[_level(group.on)]
        tip = f"{group.units} units ({group.units / panel.width:.1%}): {_where(panel, group.on)}"
        width = max(group.units * scale, 0.4)
        for d, on in enumerate(group.on):
            look = f"unit {kind if on else 'silent'}"
            x, y = left + start * scale, d * _STRIP + 2
            yield shapes.Rect(x, y, width, _STRIP - 4, look, tip, None)
    yield shapes.Text(WIDTH - 4, height - 8, _shares(panel), "tick", "end")


def _shares(panel: StripPanel) -> str:
    """`192 units: 82 % in all domains, 16 % in some, 2 % in one`"""
    counts = [0, 0, 0, 0]
    for group in panel.groups:
        counts[_level(group.on)] += group.units
    none, one, some, everywhere = (round(100 * count / max(panel.width, 1)) for count in counts)
    text = f"{panel.width} units: {everywhere} % in all domains, {some} % in some, {one} % in one"
    return f"{text}, {none} % in none" if none else text


def _level(on: tuple[bool, ...]) -> int:
    """0: in no domain, 1: in one, 2: in some, 3: in all."""
    number = sum(on)
    return 3 if number == len(on) else min(number, 2)


def _where(panel: StripPanel, on: tuple[bool, ...]) -> str:
    names = [domain for domain, there in zip(panel.domains, on, strict=True) if there]
    if len(names) == len(on):
        return "all domains"
    return " + ".join(names) + (" only" if len(names) == 1 else "") if names else "no domain"


def draw_circles(panel: CirclePanel) -> shapes.Drawing:
    rows, columns = panel.values.shape
    cell = (WIDTH - 4) / columns
    told = (
        f"{rows} by {columns} weights from {panel.values.min():.3g} to {panel.values.max():.3g}, "
        f"mean {panel.values.mean():.3g}"
    )
    circles = tuple(
        shape
        for i in range(rows)
        for j in range(columns)
        for shape in _circle(panel, float(panel.values[i, j]), i, j, cell)
    )
    group = shapes.Group(circles, letters=min(0.36 * cell, 11))
    return shapes.Drawing(WIDTH, rows * cell + 4, "circles", described(panel.title, told), (group,))


def _circle(
    panel: CirclePanel, value: float, i: int, j: int, cell: float
) -> Iterator[shapes.Shape]:
    x, y = 2 + (j + 0.5) * cell, 2 + (i + 0.5) * cell
    strength = abs(value) / (panel.high or 1.0)
    readable = cell > 20
    tip = "" if readable else f"row {i + 1}, column {j + 1}: {value:.4g}"
    yield shapes.Circle(x, y, cell * 0.46, shapes.Shade(strength, value < 0), tip)
    if readable:
        text = f"{value:.{panel.digits}f}".replace("0.", ".", 1) if panel.digits else short(value)
        dark = strength >= (_DARK_NEGATIVE if value < 0 else _DARK)
        yield shapes.Text(x, y + 3, text, "number inverse" if dark else "number", "middle")


def draw_sheet(panel: SheetPanel) -> shapes.Drawing:
    """For paper; the page lets its images flow with the width of the screen."""
    across, size, row = 7, 96, 124
    drawn: list[shapes.Shape] = []
    for number, picture in enumerate(panel.pictures):
        x, y = number % across * (size + 5), number // across * row
        drawn.append(shapes.Image(x, y, size, picture.pixels, picture.description))
        drawn.append(
            shapes.Text(x, y + size + 11, fitted(picture.caption, 112), "tick", tip=picture.caption)
        )
    width = min(across, max(len(panel.pictures), 1)) * (size + 5)
    height = math.ceil(len(panel.pictures) / across) * row
    told = "; ".join(picture.description for picture in panel.pictures)
    return shapes.Drawing(width, height, "sheet", described(panel.title, told), tuple(drawn))
