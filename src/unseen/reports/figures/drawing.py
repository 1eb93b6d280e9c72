"""Any panel as part of a page."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from unseen.reports.figures import kinds, svg_curves, svg_grids, svg_rows

_DRAW: dict[type, Callable[[Any], Markup]] = {
    kinds.BarPanel: svg_rows.draw_bars,
    kinds.DotPanel: svg_rows.draw_dots,
    kinds.CurvePanel: svg_curves.draw_curves,
    kinds.ScatterPanel: svg_curves.draw_clouds,
    kinds.HeatPanel: svg_grids.draw_heat,
    kinds.StripPanel: svg_grids.draw_strips,
    kinds.CirclePanel: svg_grids.draw_circles,
    kinds.SheetPanel: svg_grids.draw_sheet,
}


def draw(panel: kinds.Panel) -> Markup:
    """`<svg>`; for sheets of images plain HTML."""
    return _DRAW[type(panel)](panel)
