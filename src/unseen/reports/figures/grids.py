"""Heat maps, strips of masked units, grids of circles, and sheets of images."""

import base64
import io
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from PIL import Image

from unseen.reports.figures import svg
from unseen.reports.figures.charts import short
from unseen.reports.figures.svg import LETTER, WIDTH, Drawing, Picture

_DARK = 0.68  # from this shade on, numbers are in the colour of the paper
_DARK_NEGATIVE = 0.8
_STRIP = 22
MOST_CLASSES = 40  # of a confusion matrix that can be read
_DETAILED = 60  # cells that the description of a heat map reads out


def heat_map(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    row_axis: str = "",
    column_axis: str = "",
    width: float = WIDTH,
) -> Drawing:
    """Draws values from 0 (pale) to 1 (dark), NaN is left empty; `texts` stand in the cells."""
    beside = 14 if row_axis else 0
    left, top = svg.label_width(rows, 96) + beside, 18 if column_axis else 4
    cell = (width - left - 4) / max(len(columns), 1)
    height = min(cell, 34) if len(rows) > 1 or len(columns) > 3 else 30
    bottom = top + len(rows) * height
    flat = cell > max((len(name) for name in columns), default=0) * LETTER
    drawn: list[Markup] = []
    for i, name in enumerate(rows):
        fits, y = svg.fitted(name, left - 8 - beside), top + (i + 0.5) * height + 4
        drawn.append(svg.text(left - 6, y, fits, "label end", name))
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * cell
        if flat:
            drawn.append(svg.text(x, bottom + 14, name, "label middle"))
        else:
            fits = svg.fitted(name, 64)
            drawn.append(svg.text(x + 4, bottom + 8, fits, "label end", name, angle=-60))
    for (i, j), value in np.ndenumerate(values):
        text, x, y = str(texts[i][j]), left + j * cell, top + i * height
        if not np.isnan(value):
            tip = f"{rows[i]}, {columns[j]}: {text}"
            shade = float(value)
            drawn.append(svg.rect(x, y, cell - 1, height - 1, "shade", tip, fill_opacity=shade))
            if cell > len(text) * 5.2 and height > 10:
                look = "cell inverse middle" if shade >= _DARK else "cell middle"
                drawn.append(svg.text(x + (cell - 1) / 2, y + height / 2 + 3.5, text, look))
    if column_axis:
        drawn.append(svg.text(left + len(columns) * cell / 2, 12, column_axis, "tick middle"))
    if row_axis:
        middle = top + len(rows) * height / 2
        drawn.append(svg.text(10, middle, row_axis, "tick middle", angle=-90))
    foot = 20 if flat else svg.label_width(columns, 70)
    details = f"{len(rows)} rows, {len(columns)} columns"
    if values.size <= _DETAILED:
        cells = ((i, j, texts[i][j]) for i, j in np.ndindex(*values.shape))
        details = "; ".join(f"{rows[i]}, {columns[j]}: {text}" for i, j, text in cells if text)
    return svg.drawing("heat", width, bottom + foot, title, details, drawn)


def number_texts(values: np.ndarray, text: str) -> tuple[tuple[str, ...], ...]:
    """Formats numbers for the cells of a heat map as `text` says (`.2f`); none for NaN."""
    return tuple(
        tuple("" if np.isnan(value) else format(value, text) for value in row) for row in values
    )


def shares(confusion: np.ndarray) -> np.ndarray:
    """Returns each row divided by its sum; NaN where a class has no image."""
    total = confusion.sum(axis=1, keepdims=True)
    return np.divide(confusion, total, out=np.full(confusion.shape, np.nan), where=total > 0)


def confusion_map(
    title: str,
    confusion: np.ndarray,
    classes: Sequence[str],
    counts: bool = False,
    width: float = WIDTH,
) -> Drawing:
    """Draws shares of the true classes, with percent or numbers of images in the cells; of many
    classes those that are confused most: a picture of all would be too large to read."""
    values, predicted = shares(confusion), "predicted"
    if len(classes) > MOST_CLASSES:
        wrong = confusion - np.diag(confusion.diagonal())
        mistakes = wrong.sum(axis=0) + wrong.sum(axis=1)  # as true or predicted class
        chosen = np.sort(np.argsort(-mistakes, kind="stable")[:MOST_CLASSES])
        predicted += f" ({MOST_CLASSES} most confused of {len(classes)} classes)"
        values, confusion = (each[np.ix_(chosen, chosen)] for each in (values, confusion))
        classes = [classes[int(number)] for number in chosen]
    texts = number_texts(confusion, "d") if counts else number_texts(100 * values, ".0f")
    return heat_map(title, classes, classes, values, texts, "true", predicted, width)


def unit_strips(title: str, domains: Sequence[str], kept: np.ndarray) -> Drawing:
    """Draws `kept[domain, unit]`: units as thin columns, those that most domains keep first."""
    units, height, start = kept.shape[1], len(domains) * _STRIP + 24, 0
    left = svg.label_width(domains, 110)
    scale = (WIDTH - left - 4) / max(units, 1)
    drawn = [
        svg.text(left - 6, d * _STRIP + 15, svg.fitted(name, left - 6), "label end", name)
        for d, name in enumerate(domains)
    ]
    details = []
    levels = Counter[str]()
    counted = Counter(tuple(bool(on) for on in unit) for unit in kept.T)
    for on in sorted(counted, key=lambda on: (-sum(on), [not each for each in on])):
        number = counted[on]
        level = "all" if all(on) else ("none", "one", "some")[min(sum(on), 2)]
        names = " + ".join(name for name, there in zip(domains, on, strict=True) if there)
        named = {"all": "all domains", "none": "no domain", "one": f"{names} only"}
        where = named.get(level, names)
        details.append(f"{number} units in {where}")
        levels[level] += number
        tip = f"{number} units ({number / units:.1%}): {where}"
        for d, there in enumerate(on):
            look = f"unit {level if there else 'silent'}"
            place = (left + start * scale, d * _STRIP + 2, max(number * scale, 0.4), _STRIP - 4)
            drawn.append(svg.rect(*place, look, tip, rx=0))
        start += number
    shown = (("all", "in all domains"), ("some", "some"), ("one", "one"), ("none", "none"))
    parts = (f"{name} {100 * levels[level] / max(units, 1):.0f} %" for level, name in shown)
    text = f"{units} units: {', '.join(parts)}"
    drawn.append(svg.text(WIDTH - 4, height - 8, text, "tick end"))
    return svg.drawing("strips", WIDTH, height, title, "; ".join(details), drawn)


def circle_grid(title: str, values: np.ndarray, high: float, digits: int = 2) -> Drawing:
    """Draws a grid of circles with the number inside; `high` has the full colour, in another hue
    where a value is negative."""
    rows, columns = values.shape
    cell = (WIDTH - 4) / columns
    details = f"{rows} by {columns} weights from {values.min():.3g} to "
    details += f"{values.max():.3g}, mean {values.mean():.3g}"
    drawn: list[Markup] = []
    for (i, j), value in np.ndenumerate(values):
        x, y = 2 + (j + 0.5) * cell, 2 + (i + 0.5) * cell
        strength = min(abs(float(value)) / (high or 1.0), 1.0)
        readable = cell > 20
        tip = "" if readable else f"row {i + 1}, column {j + 1}: {value:.4g}"
        look, dark = ("shade negative", _DARK_NEGATIVE) if value < 0 else ("shade", _DARK)
        drawn.append(svg.circle(x, y, cell * 0.46, look, tip, fill_opacity=strength))
        if readable:
            text = f"{value:.{digits}f}".replace("0.", ".", 1) if digits else short(float(value))
            look = "number inverse middle" if strength >= dark else "number middle"
            drawn.append(svg.text(x, y + 3, text, look))
    content = [svg.group(drawn, font_size=min(0.36 * cell, 11))]
    return svg.drawing("circles", WIDTH, rows * cell + 4, title, details, content)


def picture(
    pixels: np.ndarray, caption: str, description: str, heat: np.ndarray | None = None
) -> Picture:
    """Makes a picture of `[height, width, 3]`: JPEG of photographs, PNG of what is small anyway.
    With a heatmap, that stands below the image."""
    out = io.BytesIO()
    kind = "png" if pixels.shape[0] <= 40 else "jpeg"
    if heat is not None:
        pixels = np.concatenate([pixels, overlay(pixels, heat)])
    Image.fromarray(pixels).save(out, kind, optimize=True, quality=82)
    address = f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"
    return Picture(address, caption, description, len(pixels) / pixels.shape[1])


def overlay(pixels: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Returns a picture in grey, with what counted in colour, from yellow to red where it counted
    most; `heat` is `[rows, columns]` from 0 to 1."""
    size = pixels.shape[1], pixels.shape[0]
    wide = Image.fromarray(heat.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    warm = np.asarray(wide)[..., None]
    colour = np.concatenate([np.full_like(warm, 255), 220 * (1 - warm), np.zeros_like(warm)], 2)
    grey = pixels.mean(axis=2, keepdims=True)
    return (grey + 0.7 * warm * (colour - grey)).round().astype(np.uint8)


def image_sheet(title: str, pictures: Sequence[Picture]) -> Drawing:
    """Draws a sheet for paper; the page lets its images flow with the width of the screen."""
    across, size = min(7, max(len(pictures), 1)), 96
    row = max((size * each.tall for each in pictures), default=size) + 28
    drawn: list[Markup] = []
    for number, each in enumerate(pictures):
        x, y, height = number % across * (size + 5), number // across * row, size * each.tall
        about = {"x": x, "y": y, "width": size, "height": height, "href": each.address}
        drawn.append(svg.element("image", "", each.description, **about))
        caption = svg.fitted(each.caption, 112)
        drawn.append(svg.text(x, y + height + 11, caption, "tick", each.caption))
    height = math.ceil(len(pictures) / across) * row
    details = "; ".join(each.description for each in pictures)
    sheet = svg.drawing("sheet", across * (size + 5), height, title, details, drawn)
    return sheet._replace(pictures=tuple(pictures))
