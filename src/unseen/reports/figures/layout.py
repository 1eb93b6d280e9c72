"""Any panel as a drawing."""

from collections.abc import Callable
from typing import Any

from unseen.reports.figures import curves, grids, panels, rows, shapes

_DRAW: dict[type, Callable[[Any], shapes.Drawing]] = {
    panels.BarPanel: rows.draw_bars,
    panels.DotPanel: rows.draw_dots,
    panels.CurvePanel: curves.draw_curves,
    panels.ScatterPanel: curves.draw_clouds,
    panels.HeatPanel: grids.draw_heat,
    panels.StripPanel: grids.draw_strips,
    panels.CirclePanel: grids.draw_circles,
    panels.SheetPanel: grids.draw_sheet,
}


def draw(panel: panels.Panel) -> shapes.Drawing:
    return _DRAW[type(panel)](panel)
