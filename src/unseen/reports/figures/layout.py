"""Any panel as part of a page."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from unseen.reports.figures import curves, grids, panels, rows

_DRAW: dict[type, Callable[[Any], Markup]] = {
    panels.BarPanel: rows.draw_bars,
    panels.DotPanel: rows.draw_dots,
    panels.CurvePanel: curves.draw_curves,
    panels.ScatterPanel: curves.draw_clouds,
    panels.HeatPanel: grids.draw_heat,
    panels.StripPanel: grids.draw_strips,
    panels.CirclePanel: grids.draw_circles,
    panels.SheetPanel: grids.draw_sheet,
}


def draw(panel: panels.Panel) -> Markup:
    """`<svg>`; for sheets of images plain HTML."""
    return _DRAW[type(panel)](panel)
