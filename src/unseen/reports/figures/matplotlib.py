"""Drawings by matplotlib, which is imported here and nowhere else."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import patches
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image as Pillow

from unseen.atomic import atomic_file
from unseen.reports.figures import shapes

_PIXELS = 100  # to an inch: panels two in a row are seven inches wide, letters eight points high
_LETTERS = 0.9 * 72 / _PIXELS  # points to a pixel; matplotlib's font is wider than a browser's
_STYLE: Any = {
    "pdf.fonttype": 42,  # letters stay letters
    "svg.fonttype": "none",
    "svg.hashsalt": "unseen",
}
_NO_DATE = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}

_PALETTE = (  # as in page.css
    *("#566579", "#0072b2", "#d55e00", "#00856a", "#a8487f", "#a87400"),
    *("#2b8cc4", "#6f4bb3", "#84542a", "#4b7a28", "#a12c2c", "#2a828f"),
)
_HEAT, _NEGATIVE = "#0b4f8a", "#b0482a"
_INK, _SOFT, _FAINT = "#1c2430", "#55606e", "#dbe1e8"
_OWN = "own"  # the colour of the group

_LINES: dict[str, dict[str, Any]] = {
    "grid": {"color": _FAINT, "lw": 0.6},
    "axis": {"color": _SOFT, "lw": 0.8},
    "zero": {"color": _SOFT, "lw": 0.8},
    "diagonal": {"color": _SOFT, "lw": 0.8, "ls": (0, (2, 4))},
    "joined": {"color": _OWN, "lw": 1.4, "alpha": 0.55},
    "whisker": {"color": _INK, "lw": 1.0},
    "whisker own": {"color": _OWN, "lw": 1.3},
    "curve": {"color": _OWN, "lw": 1.2},
    "curve dashed": {"color": _OWN, "lw": 1.2, "ls": "--"},
}
_AREAS: dict[str, dict[str, Any]] = {
    "fill": {"fc": _OWN, "lw": 0},
    "hollow": {"fc": "white", "ec": _OWN, "lw": 1.2},
    "cloud fill": {"fc": _OWN, "lw": 0, "alpha": 0.75},
    "cloud hollow": {"fc": "none", "ec": _OWN, "lw": 0.8},
    "seed": {"fc": "white", "ec": _INK, "lw": 0.5},
    "frame": {"fc": "none", "ec": _FAINT, "lw": 0.8},
    "unit all": {"fc": _PALETTE[1], "lw": 0},
    "unit some": {"fc": _PALETTE[5], "lw": 0},
    "unit one": {"fc": _PALETTE[2], "lw": 0},
    "unit none": {"fc": "white", "lw": 0},
    "unit silent": {"fc": "white", "lw": 0},
}
_TEXTS: dict[str, dict[str, Any]] = {
    "title": {"fontsize": 12, "fontweight": "bold"},
    "label": {"fontsize": 11},
    "tick": {"fontsize": 10, "color": _SOFT},
    "value": {"fontsize": 11},
    "cell": {"fontsize": 10},
    "cell inverse": {"fontsize": 10, "color": "white"},
    "number": {"fontsize": 9.5},
    "number inverse": {"fontsize": 9.5, "color": "white"},
}
_ALIGNED = {"start": "left", "middle": "center", "end": "right"}


def write_drawing(drawing: shapes.Drawing, stem: Path) -> list[Path]:
    """PNG, SVG and PDF, without the time of day."""
    paths = []
    with mpl.rc_context(_STYLE):
        canvas = _canvas(drawing)
        for kind, about in _NO_DATE.items():
            path = stem.with_name(f"{stem.name}.{kind}")
            with atomic_file(path) as part:
                canvas.savefig(part, format=kind, dpi=200, metadata=about)
            paths.append(path)
    return paths


def to_picture(drawing: shapes.Drawing) -> Pillow.Image:
    """A pixel for each unit of the drawing."""
    canvas = FigureCanvasAgg(_canvas(drawing))
    canvas.draw()
    return Pillow.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _canvas(drawing: shapes.Drawing) -> Figure:
    canvas = Figure(figsize=(drawing.width / _PIXELS, drawing.height / _PIXELS), dpi=_PIXELS)
    axes = canvas.add_axes((0, 0, 1, 1), autoscale_on=False)
    axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.set_axis_off()
    pen = _Pen(axes, [])
    pen.draw_all(drawing.shapes)
    axes.add_collection(PatchCollection(pen.cells, match_original=True, zorder=0), autolim=False)
    return canvas


class _Pen(NamedTuple):
    """Draws in the colour, the look and at the place of a group."""

    axes: Axes
    cells: list[patches.Patch]
    """Shaded ones and dots, which may be many: drawn at once, below everything else."""
    color: str = _INK
    look: str = ""
    letters: float | None = None
    x: float = 0.0
    y: float = 0.0

    def draw_all(self, drawn: Iterable[shapes.Shape]) -> None:
        for shape in drawn:
            self._draw(shape)

    def _draw(self, shape: shapes.Shape) -> None:
        match shape:
            case shapes.Group():
                self._group(shape)
            case shapes.Rect(x, y, width, height, look):
                place = (self.x + x, self.y + y)
                self._area(patches.Rectangle(place, width, height), look)
            case shapes.Circle(x, y, radius, look):
                self._area(patches.Circle((self.x + x, self.y + y), radius), look)
            case shapes.Dots(points, radius, look):
                for x, y in points:
                    dot = patches.Circle((self.x + x, self.y + y), radius)
                    self._area(dot, f"cloud {look}")
            case shapes.Line(x1, y1, x2, y2, look):
                self._line(((x1, y1), (x2, y2)), look)
            case shapes.Curve(points):
                self._line(points, self.look)
            case shapes.Image(x, y, size, pixels):
                left, top = self.x + x, self.y + y
                extent = (left, left + size, top + size, top)
                self.axes.imshow(pixels, extent=extent, aspect="auto")
            case shapes.Text():
                self._text(shape)

    def _group(self, group: shapes.Group) -> None:
        color = self.color if group.color is None else _PALETTE[group.color % len(_PALETTE)]
        x, y = self.x + group.at[0], self.y + group.at[1]
        pen = _Pen(self.axes, self.cells, color, group.look, group.letters, x, y)
        pen.draw_all(group.shapes)

    def _area(self, patch: patches.Patch, look: str | shapes.Shade) -> None:
        if isinstance(look, shapes.Shade):
            patch.set(fc=_mixed(look), ec=_FAINT, lw=0.4)
        else:
            patch.set(**self._colored(_AREAS[look]))
        if isinstance(look, shapes.Shade) or look.startswith("cloud"):
            self.cells.append(patch)
        else:
            patch.set(zorder=1, clip_on=False)
            self.axes.add_artist(patch)

    def _line(self, points: Sequence[tuple[float, float]], look: str) -> None:
        x, y = zip(*points, strict=True)
        line = Line2D(np.add(x, self.x), np.add(y, self.y), **self._colored(_LINES[look]))
        line.set(zorder=1, clip_on=False)
        self.axes.add_artist(line)

    def _colored(self, style: dict[str, Any]) -> dict[str, Any]:
        return {name: self.color if value == _OWN else value for name, value in style.items()}

    def _text(self, text: shapes.Text) -> None:
        style: dict[str, Any] = {"color": _INK, **_TEXTS[text.look]}
        style["fontsize"] = _LETTERS * (self.letters or style["fontsize"])
        self.axes.text(
            self.x + text.x, self.y + text.y, text.text, **style,
            ha=_ALIGNED[text.anchor], va="baseline", rotation=-text.angle, rotation_mode="anchor",
            parse_math=False,
        )  # fmt: skip


def _mixed(shade: shapes.Shade) -> tuple[float, float, float]:
    """From the paper (0) to the full colour (1)."""
    strength = min(max(shade.strength, 0.0), 1.0)
    full = _NEGATIVE if shade.negative else _HEAT
    red, green, blue = (1 + strength * (int(full[i : i + 2], 16) / 255 - 1) for i in (1, 3, 5))
    return red, green, blue
