"""Heat maps, mask strips, grids of circles, and sheets of images."""

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from unseen.reports.figures import svg
from unseen.reports.figures.axes import short
from unseen.reports.figures.svg import LETTER, WIDTH, Drawing

_DARK = 0.68  # from this shade on, numbers are in the colour of the paper
_DARK_NEGATIVE = 0.8
_STRIP = 22
_DETAILED = 60  # cells that the description of a heat map reads out


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

    def draw(self, width: float = WIDTH) -> Drawing:
        rows, columns = len(self.rows), len(self.columns)
        left = svg.label_width(self.rows, 96) + (14 if self.row_axis else 0)
        top = 18 if self.column_axis else 4
        cell = (width - left - 4) / max(columns, 1)
        height = min(cell, 34) if rows > 1 or columns > 3 else 30
        bottom = top + rows * height
        flat = cell > max((len(name) for name in self.columns), default=0) * LETTER
        drawn = [
            *self._row_names(left, top, height),
            *self._column_names(left, bottom, cell, flat),
            *(
                shape
                for i in range(rows)
                for j in range(columns)
                for shape in self._cell(i, j, left + j * cell, top + i * height, cell, height)
            ),
        ]
        if self.column_axis:
            middle = left + columns * cell / 2
            drawn.append(svg.text(middle, 12, self.column_axis, "tick", "middle"))
        if self.row_axis:
            middle = top + rows * height / 2
            drawn.append(svg.text(10, middle, self.row_axis, "tick", "middle", angle=-90))
        foot = 20 if flat else svg.label_width(self.columns, 70)
        return svg.drawing("heat", width, bottom + foot, self.title, self._details(), drawn)

    def _row_names(self, left: float, top: float, height: float) -> Iterator[Markup]:
        room = left - 8 - (14 if self.row_axis else 0)
        for i, name in enumerate(self.rows):
            y = top + (i + 0.5) * height + 4
            yield svg.text(left - 6, y, svg.fitted(name, room), "label", "end", name)

    def _column_names(
        self, left: float, bottom: float, cell: float, flat: bool
    ) -> Iterator[Markup]:
        for j, name in enumerate(self.columns):
            x = left + (j + 0.5) * cell
            if flat:
                yield svg.text(x, bottom + 14, name, "label", "middle")
            else:
                fits = svg.fitted(name, 64)
                yield svg.text(x + 4, bottom + 8, fits, "label", "end", name, angle=-60)

    def _cell(
        self, i: int, j: int, x: float, y: float, width: float, height: float
    ) -> Iterator[Markup]:
        value, text = float(self.values[i, j]), self.texts[i][j]
        if math.isnan(value):
            return
        tip = f"{self.rows[i]}, {self.columns[j]}: {text}"
        yield svg.rect(x, y, width - 1, height - 1, "shade", tip, shade=value)
        if width > len(text) * 5.2 and height > 10:
            look = "cell inverse" if value >= _DARK else "cell"
            yield svg.text(x + (width - 1) / 2, y + height / 2 + 3.5, text, look, "middle")

    def _details(self) -> str:
        if self.values.size > _DETAILED:
            return f"{len(self.rows)} rows, {len(self.columns)} columns"
        return "; ".join(
            f"{row}, {column}: {text}"
            for row, texts in zip(self.rows, self.texts, strict=True)
            for column, text in zip(self.columns, texts, strict=True)
            if text
        )


def number_texts(values: np.ndarray, text: str) -> tuple[tuple[str, ...], ...]:
    """Formats numbers for the cells of a heat map as `text` says (`.2f`); none for NaN."""
    return tuple(
        tuple("" if np.isnan(value) else format(value, text) for value in row) for row in values
    )


@dataclass(frozen=True)
class StripPanel:
    """`kept[domain, unit]`: units as thin columns, those that most domains keep first."""

    title: str
    domains: tuple[str, ...]
    kept: np.ndarray

    def draw(self) -> Drawing:
        groups = sorted_units(self.kept)
        height = len(self.domains) * _STRIP + 24
        left = svg.label_width(self.domains, 110)
        scale = (WIDTH - left - 4) / max(self.kept.shape[1], 1)
        drawn = [
            svg.text(left - 6, d * _STRIP + 15, svg.fitted(name, left - 6), "label", "end", name)
            for d, name in enumerate(self.domains)
        ]
        starts = [0, *accumulate(groups.values())]
        for start, (on, units) in zip(starts, groups.items(), strict=False):
            drawn += self._units(on, units, left + start * scale, max(units * scale, 0.4))
        drawn.append(svg.text(WIDTH - 4, height - 8, self._shares(groups), "tick", "end"))
        details = "; ".join(f"{units} units in {self._where(on)}" for on, units in groups.items())
        return svg.drawing("strips", WIDTH, height, self.title, details, drawn)

    def _units(self, on: tuple[bool, ...], units: int, x: float, width: float) -> Iterator[Markup]:
        tip = f"{units} units ({units / self.kept.shape[1]:.1%}): {self._where(on)}"
        for d, kept in enumerate(on):
            look = f"unit {_level(on) if kept else 'silent'}"
            yield svg.rect(x, d * _STRIP + 2, width, _STRIP - 4, look, tip, None)

    def _shares(self, groups: Counter[tuple[bool, ...]]) -> str:
        """Returns text such as `192 units: 82 % in all domains, 16 % in some, 2 % in one`."""
        width = self.kept.shape[1]
        counts = Counter[str]()
        for on, units in groups.items():
            counts[_level(on)] += units
        share = {level: round(100 * count / max(width, 1)) for level, count in counts.items()}
        text = f"{width} units: {share.get('all', 0)} % in all domains, "
        text += f"{share.get('some', 0)} % in some, {share.get('one', 0)} % in one"
        return f"{text}, {share['none']} % in none" if share.get("none") else text

    def _where(self, on: tuple[bool, ...]) -> str:
        names = [domain for domain, there in zip(self.domains, on, strict=True) if there]
        if len(names) == len(on):
            return "all domains"
        return " + ".join(names) + (" only" if len(names) == 1 else "") if names else "no domain"


def sorted_units(kept: np.ndarray) -> Counter[tuple[bool, ...]]:
    """Counts units by the domains that keep them: first those shared by all, then by fewer and
    fewer, last those that no domain keeps."""
    counted = Counter(tuple(bool(on) for on in unit) for unit in kept.T)
    ordered = sorted(counted, key=lambda on: (-sum(on), [not each for each in on]))
    return Counter({on: counted[on] for on in ordered})


def _level(on: tuple[bool, ...]) -> str:
    return "all" if all(on) else ("none", "one", "some")[min(sum(on), 2)]


@dataclass(frozen=True)
class CirclePanel:
    """A grid of circles with the number inside; `high` has the full colour, in another hue where
    a value is negative."""

    title: str
    values: np.ndarray
    high: float
    digits: int = 2

    def draw(self) -> Drawing:
        rows, columns = self.values.shape
        cell = (WIDTH - 4) / columns
        details = (
            f"{rows} by {columns} weights from {self.values.min():.3g} to "
            f"{self.values.max():.3g}, mean {self.values.mean():.3g}"
        )
        circles = (
            shape
            for i in range(rows)
            for j in range(columns)
            for shape in self._circle(float(self.values[i, j]), i, j, cell)
        )
        content = svg.group(circles, letters=min(0.36 * cell, 11))
        return svg.drawing("circles", WIDTH, rows * cell + 4, self.title, details, [content])

    def _circle(self, value: float, i: int, j: int, cell: float) -> Iterator[Markup]:
        x, y = 2 + (j + 0.5) * cell, 2 + (i + 0.5) * cell
        strength = min(abs(value) / (self.high or 1.0), 1.0)
        readable = cell > 20
        tip = "" if readable else f"row {i + 1}, column {j + 1}: {value:.4g}"
        look = "shade negative" if value < 0 else "shade"
        yield svg.circle(x, y, cell * 0.46, look, tip, shade=strength)
        if readable:
            text = f"{value:.{self.digits}f}".replace("0.", ".", 1) if self.digits else short(value)
            dark = strength >= (_DARK_NEGATIVE if value < 0 else _DARK)
            yield svg.text(x, y + 3, text, "number inverse" if dark else "number", "middle")


class Picture(NamedTuple):
    """An image with a caption; `pixels` are `[height, width, 3]`."""

    pixels: np.ndarray
    caption: str
    description: str

    @property
    def address(self) -> str:
        """A data: address; JPEG for photographs, PNG for what is small anyway."""
        from PIL import Image

        out = io.BytesIO()
        kind = "png" if self.pixels.shape[0] <= 40 else "jpeg"
        Image.fromarray(self.pixels).save(out, kind, optimize=True, quality=82)
        return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


@dataclass(frozen=True)
class SheetPanel:
    title: str
    pictures: tuple[Picture, ...]

    def draw(self) -> Drawing:
        """Draws a sheet for paper; the page lets its images flow with the width of the screen."""
        across, size, row = 7, 96, 124
        drawn = []
        for number, picture in enumerate(self.pictures):
            x, y = number % across * (size + 5), number // across * row
            tip, href = picture.description, picture.address
            image = svg.element("image", "", tip, x=x, y=y, width=size, height=size, href=href)
            drawn.append(image)
            caption = svg.fitted(picture.caption, 112)
            drawn.append(svg.text(x, y + size + 11, caption, "tick", tip=picture.caption))
        width = min(across, max(len(self.pictures), 1)) * (size + 5)
        height = math.ceil(len(self.pictures) / across) * row
        details = "; ".join(each.description for each in self.pictures)
        return svg.drawing("sheet", width, height, self.title, details, drawn)
