"""One function for each kind of panel: onto the axes of a matplotlib figure."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unseen.reports.figures import panels
from unseen.reports.figures.colors import INK, NEGATIVE, color, mixed
from unseen.reports.figures.scales import short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_STRIP_COLORS = {"all": color(1), "some": color(5), "one": color(2)}


def bars(axes: "Axes", panel: panels.BarPanel) -> None:
    for place, bar in enumerate(panel.bars):
        if bar.value is None:
            continue
        axes.barh(place, bar.value, color=color(bar.color), height=0.7)
        if bar.half_width is not None:
            axes.errorbar(bar.value, place, xerr=bar.half_width, color=INK, capsize=2, lw=0.9)
        if len(bar.points) > 1:
            places = [place] * len(bar.points)
            axes.scatter(bar.points, places, s=5, color="white", ec=INK, lw=0.5, zorder=3)
    _rows(axes, [bar.label for bar in panel.bars], panel.axis)


def dots(axes: "Axes", panel: panels.DotPanel) -> None:
    if panel.zero:
        axes.axvline(0, color=INK, lw=0.8)
    for place, row in enumerate(panel.rows):
        own = color(row.color)
        values = [mark.value for mark in row.marks]
        if len(values) > 1:
            axes.plot([min(values), max(values)], [place, place], color=own, lw=1.2)
        for mark in row.marks:
            inside = "white" if mark.hollow else own
            axes.errorbar(
                mark.value, place, xerr=mark.half_width, fmt="o", color=own, mfc=inside,
                ms=5, capsize=2, lw=1,
            )  # fmt: skip
    _rows(axes, [row.label for row in panel.rows], panel.axis)


def _rows(axes: "Axes", labels: list[str], axis: panels.Axis) -> None:
    axes.set_yticks(range(len(labels)), [plain(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(axis.low, axis.high)
    axes.set_xlabel(plain(axis.label))
    axes.grid(axis="x", lw=0.4, alpha=0.5)
    axes.tick_params(axis="y", length=0)


def curves(axes: "Axes", panel: panels.CurvePanel) -> None:
    for line in panel.lines:
        if not line.points:
            continue
        x, y = zip(*line.points, strict=True)
        marker = "o" if panel.dots or len(x) == 1 else None
        style = "--" if line.dashed else "-"
        axes.plot(x, y, color=color(line.color), lw=1.1, ls=style, marker=marker, ms=3)
    if panel.diagonal:
        ends = ([panel.x.low, panel.x.high], [panel.y.low, panel.y.high])
        axes.plot(*ends, color="0.6", lw=0.8, ls=":")
    if panel.x.bend:
        axes.set_xscale("asinh", linear_width=panel.x.bend)
    if panel.x.marks:
        axes.set_xticks(panel.x.marks, [short(mark) for mark in panel.x.marks])
        axes.set_xticks([], minor=True)
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.set_xlabel(plain(panel.x.label))
    axes.set_ylabel(plain(panel.y.label))
    axes.grid(lw=0.4, alpha=0.5)


def clouds(axes: "Axes", panel: panels.ScatterPanel) -> None:
    for cloud in panel.clouds:
        own = color(cloud.color)
        inside = "none" if cloud.hollow else own
        axes.scatter(*cloud.points.T, s=7, fc=inside, ec=own, lw=0.6, alpha=0.8)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal")
    handles = legend_handles(panel.keys)
    if handles:
        where = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.02)}
        axes.legend(handles=handles, ncols=3, fontsize=6, handletextpad=0.2, **where)


def heat(axes: "Axes", panel: panels.HeatPanel) -> None:
    shades = np.ones((*panel.values.shape, 3))
    for place, value in np.ndenumerate(panel.values):
        if math.isnan(value):
            continue
        shades[place] = mixed(float(value))
        i, j = place
        if len(panel.columns) <= 12:
            ink = "white" if value >= 0.68 else INK
            text = panel.texts[i][j]
            axes.text(j, i, plain(text), ha="center", va="center", color=ink, fontsize=6)
    axes.imshow(shades, aspect="auto")
    names = [plain(name) for name in panel.columns]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(panel.rows)), [plain(name) for name in panel.rows])
    axes.set_xlabel(plain(panel.column_axis))
    axes.set_ylabel(plain(panel.row_axis))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def strips(axes: "Axes", panel: panels.StripPanel) -> None:
    start = 0
    for group in panel.groups:
        number = sum(group.on)
        kind = "all" if number == len(group.on) else "one" if number == 1 else "some"
        for d, on in enumerate(group.on):
            if on:
                axes.barh(d, group.units, left=start, color=_STRIP_COLORS[kind], height=0.8, lw=0)
        start += group.units
    _rows(axes, list(panel.domains), panels.Axis(0, max(panel.width, 1), "unit, sorted"))
    axes.grid(visible=False)


def circles(axes: "Axes", panel: panels.CirclePanel) -> None:
    from matplotlib.patches import Circle

    rows, columns = panel.values.shape
    for (i, j), value in np.ndenumerate(panel.values):
        strength = abs(float(value)) / (panel.high or 1.0)
        shade = mixed(strength, NEGATIVE) if value < 0 else mixed(strength)
        axes.add_patch(Circle((j, i), 0.46, fc=shade, ec="0.7", lw=0.3))
        ink = "white" if strength >= 0.68 else INK
        text = f"{value:.{panel.digits}f}".replace("0.", ".", 1) if panel.digits else f"{value:.0f}"
        axes.text(j, i, text, ha="center", va="center", fontsize=4, color=ink)
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_aspect("equal")
    axes.set_axis_off()


def sheet(axes: "Axes", panel: panels.SheetPanel) -> None:
    """Images eight to a row, captions below."""
    columns = min(8, max(len(panel.pictures), 1))
    for number, picture in enumerate(panel.pictures):
        row, column = divmod(number, columns)
        axes.imshow(picture.pixels, extent=(column, column + 0.94, row + 0.7, row))
        caption = plain(picture.caption)
        axes.text(column, row + 0.74, caption, fontsize=4, va="top", wrap=False)
    axes.set_xlim(0, columns)
    axes.set_ylim(math.ceil(len(panel.pictures) / columns), 0)
    axes.set_aspect("auto")
    axes.set_axis_off()


def legend_handles(keys: Sequence[panels.Key]) -> "list[Artist]":
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    for key in keys:
        own, label = color(key.color), plain(key.label)
        if key.style == "area":
            handles.append(Patch(color=own, label=label))
        elif key.style in ("dot", "hollow"):
            inside = own if key.style == "dot" else "white"
            dot = Line2D([], [], ls="", marker="o", mfc=inside, mec=own, ms=5, label=label)
            handles.append(dot)
        else:
            dash = "--" if key.style == "dashed" else "-"
            handles.append(Line2D([], [], color=own, ls=dash, label=label))
    return handles


def plain(text: str) -> str:
    """A dollar would begin a formula."""
    return text.replace("$", r"\$")
