"""Figures as PNG, SVG and PDF files for a paper, drawn by matplotlib on white."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unseen.atomic import atomic_file
from unseen.reports.figures import panels
from unseen.reports.figures.paper_panels import (
    bars,
    circles,
    clouds,
    curves,
    dots,
    heat,
    legend_handles,
    plain,
    sheet,
    strips,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FORMATS = ("png", "svg", "pdf")
_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters stay letters
    "svg.fonttype": "none",
    "svg.hashsalt": "unseen",
}
_NO_DATE = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None, "ModDate": None}}

_DRAW: dict[type, Callable[[Any, Any], None]] = {
    panels.BarPanel: bars,
    panels.DotPanel: dots,
    panels.CurvePanel: curves,
    panels.ScatterPanel: clouds,
    panels.HeatPanel: heat,
    panels.StripPanel: strips,
    panels.CirclePanel: circles,
    panels.SheetPanel: sheet,
}


def write_figures(figures: Iterable[panels.Figure], folder: Path) -> list[Path]:
    """Each figure in three formats, named by what it shows; equal figures make equal files."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    paths = []
    with mpl.rc_context(_STYLE):
        for figure in figures:
            canvas = Canvas(layout="constrained")
            _fill(canvas, figure)
            canvas.draw_without_rendering()  # places everything; once is enough
            canvas.set_layout_engine("none")
            for kind in FORMATS:
                path = folder / f"{figure.name}.{kind}"
                with atomic_file(path) as part:
                    canvas.savefig(part, format=kind, dpi=200, metadata=_NO_DATE[kind])
                paths.append(path)
    return paths


def _fill(canvas: "Canvas", figure: panels.Figure) -> None:
    columns = min(len(figure.panels), 1 if figure.wide else 3)
    rows = math.ceil(len(figure.panels) / columns)
    width = 7.0 if figure.wide or columns == 3 else 2.6 * columns + 0.4
    canvas.set_size_inches(width, 0.6 + rows * max(map(_height, figure.panels)))
    axes = canvas.subplots(rows, columns, squeeze=False).flatten()
    for axis, panel in zip(axes, figure.panels, strict=False):
        _DRAW[type(panel)](axis, panel)
        axis.set_title(plain(panel.title), loc="left")
    for axis in axes[len(figure.panels) :]:
        axis.set_axis_off()
    _add_legend(canvas, figure.legend)


def _height(panel: panels.Panel) -> float:
    """Inches of a panel a third of a page wide."""
    match panel:
        case panels.BarPanel():
            return 0.55 + 0.2 * len(panel.bars)
        case panels.DotPanel():
            return 0.55 + 0.2 * len(panel.rows)
        case panels.StripPanel():
            return 0.5 + 0.25 * len(panel.domains)
        case panels.HeatPanel():
            return 0.9 + min(0.22 * len(panel.rows), 2.4)
        case panels.SheetPanel():
            return 0.5 + 0.75 * math.ceil(len(panel.pictures) / 8)
        case panels.CirclePanel():
            return 2.2 * panel.values.shape[0] / panel.values.shape[1] + 0.3
    return 1.9


def _add_legend(canvas: "Canvas", keys: tuple[panels.Key, ...]) -> None:
    handles = legend_handles(keys)
    if handles:
        canvas.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
