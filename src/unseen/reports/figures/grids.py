"""Heat maps, mask strips, grids of circles, and sheets of images."""

import base64
import io
import math
from itertools import accumulate

from markupsafe import Markup

from unseen.reports.figures.panels import (
    CirclePanel,
    HeatPanel,
    SheetPanel,
    StripPanel,
)
from unseen.reports.figures.scales import short
from unseen.reports.figures.svg import (
    LETTER,
    WIDTH,
    Drawing,
    described,
    fitted,
    label_width,
    shade,
)

_DARK = 0.68  # from this shade on, numbers are in the colour of the paper
_DARK_NEGATIVE = 0.8
_STRIP = 22


def draw_heat(panel: HeatPanel) -> Markup:
    rows, columns = len(panel.rows), len(panel.columns)
    left = label_width(panel.rows, 96) + (14 if panel.row_axis else 0)
    top = 4 + (14 if panel.column_axis else 0)
    cell = (WIDTH - left - 4) / max(columns, 1)
    height = min(cell, 34) if rows > 1 or columns > 3 else 30
    flat = cell > max((len(name) for name in panel.columns), default=0) * LETTER
    foot = 20 if flat else label_width(panel.columns, 70)
    bottom = top + rows * height
    drawing = Drawing(WIDTH, bottom + foot, described(panel.title, _heat_text(panel)), "heat")
    for i, name in enumerate(panel.rows):
        y = top + (i + 0.5) * height + 4
        room = left - 8 - (14 if panel.row_axis else 0)
        drawing.text(left - 6, y, fitted(name, room), "label", "end", tip=name)
        for j in range(columns):
            place = (left + j * cell, top + i * height, cell, height)
            _heat_cell(drawing, panel, i, j, place)
    for j, name in enumerate(panel.columns):
        x = left + (j + 0.5) * cell
        if flat:
            drawing.text(x, bottom + 14, name, "label", "middle")
        else:
            _slanted(drawing, x + 4, bottom + 8, fitted(name, 64), name)
    if panel.column_axis:
        drawing.text(left + columns * cell / 2, 12, panel.column_axis, "tick", "middle")
    if panel.row_axis:
        drawing.begin(transform=f"translate(10 {top + rows * height / 2:.0f}) rotate(-90)")
        drawing.text(0, 0, panel.row_axis, "tick", "middle")
        drawing.end()
    return drawing.finish()


def _slanted(drawing: Drawing, x: float, y: float, text: str, tip: str) -> None:
    drawing.begin(transform=f"translate({x:.1f} {y:.1f}) rotate(-60)")
    drawing.text(0, 0, text, "label", "end", tip=tip)
    drawing.end()


def _heat_cell(
    drawing: Drawing,
    panel: HeatPanel,
    i: int,
    j: int,
    place: tuple[float, float, float, float],
) -> None:
    value = float(panel.values[i, j])
    if math.isnan(value):
        return
    x, y, width, height = place
    text = panel.texts[i][j]
    tip = f"{panel.rows[i]}, {panel.columns[j]}: {text}"
    drawing.shape(
        "rect", tip, x=x, y=y, width=width - 1, height=height - 1, rx=2, class_=shade(value)
    )
    if width > len(text) * 5.2 and height > 10:
        kind = "inverse" if value >= _DARK else "plain"
        drawing.text(x + width / 2 - 0.5, y + height / 2 + 3.5, text, "cell", "middle", kind)


def _heat_text(panel: HeatPanel) -> str:
    if panel.values.size > 60:
        return f"{len(panel.rows)} rows, {len(panel.columns)} columns"
    return "; ".join(
        f"{row}, {column}: {text}"
        for row, texts in zip(panel.rows, panel.texts, strict=True)
        for column, text in zip(panel.columns, texts, strict=True)
        if text
    )


def draw_strips(panel: StripPanel) -> Markup:
    told = "; ".join(f"{g.units} units in {_where(panel, g.on)}" for g in panel.groups)
    left = label_width(panel.domains, 110)
    scale = (WIDTH - left - 4) / max(panel.width, 1)
    height = len(panel.domains) * _STRIP + 24
    drawing = Drawing(WIDTH, height, described(panel.title, told), "strips")
    starts = [0, *accumulate(group.units for group in panel.groups)]
    for d, domain in enumerate(panel.domains):
        label = fitted(domain, left - 6)
        drawing.text(left - 6, d * _STRIP + 15, label, "label", "end", tip=domain)
    for start, group in zip(starts, panel.groups, strict=False):
        kind = ("none", "one", "some", "all")[_level(group.on)]
        tip = f"{group.units} units ({group.units / panel.width:.1%}): {_where(panel, group.on)}"
        width = max(group.units * scale, 0.4)
        for d, on in enumerate(group.on):
            drawing.shape(
                "rect",
                tip,
                x=left + start * scale,
                y=d * _STRIP + 2,
                width=width,
                height=_STRIP - 4,
                class_=f"unit {kind if on else 'silent'}",
            )
    drawing.text(WIDTH - 4, height - 8, _shares(panel), "tick", "end")
    return drawing.finish()


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


def draw_circles(panel: CirclePanel) -> Markup:
    rows, columns = panel.values.shape
    cell = (WIDTH - 4) / columns
    told = (
        f"{rows} by {columns} weights from {panel.values.min():.3g} to {panel.values.max():.3g}, "
        f"mean {panel.values.mean():.3g}"
    )
    drawing = Drawing(WIDTH, rows * cell + 4, described(panel.title, told), "circles")
    drawing.begin(style=f"--number: {min(0.36 * cell, 11):.1f}px")
    for i in range(rows):
        for j in range(columns):
            _circle(drawing, panel, float(panel.values[i, j]), i, j, cell)
    drawing.end()
    return drawing.finish()


def _circle(
    drawing: Drawing, panel: CirclePanel, value: float, i: int, j: int, cell: float
) -> None:
    x, y = 2 + (j + 0.5) * cell, 2 + (i + 0.5) * cell
    strength = abs(value) / (panel.high or 1.0)
    readable = cell > 20
    tip = "" if readable else f"row {i + 1}, column {j + 1}: {value:.4g}"
    sign = " negative" if value < 0 else ""
    drawing.shape("circle", tip, cx=x, cy=y, r=cell * 0.46, class_=f"{shade(strength)}{sign}")
    if readable:
        text = f"{value:.{panel.digits}f}".replace("0.", ".", 1) if panel.digits else short(value)
        dark = strength >= (_DARK_NEGATIVE if value < 0 else _DARK)
        kind = "inverse" if dark else "plain"
        drawing.text(x, y + 3, text, "number", "middle", kind)


def draw_sheet(panel: SheetPanel) -> Markup:
    """Images of their own with captions; not SVG, so that they flow on a narrow screen."""
    parts = [Markup('<div class="sheet">')]
    for picture in panel.pictures:
        parts.append(
            Markup(
                '<figure><img src="{}" alt="{}" title="{}" width="96" height="96">'
                "<figcaption>{}</figcaption></figure>"
            ).format(_embedded(picture.pixels), *[picture.description] * 2, picture.caption)
        )
    return Markup("").join([*parts, Markup("</div>")])


def _embedded(pixels) -> str:
    """A data: address; JPEG for photographs, PNG for what is small anyway."""
    from PIL import Image

    out = io.BytesIO()
    small = pixels.shape[0] <= 40
    image = Image.fromarray(pixels)
    image.save(out, "PNG", optimize=True) if small else image.save(out, "JPEG", quality=82)
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"
