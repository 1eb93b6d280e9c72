"""Curves over training steps, and clouds of points."""

import json

from markupsafe import Markup

from unseen.reports.figures.panels import CurvePanel, Line, ScatterPanel
from unseen.reports.figures.scales import Scale, short, ticks
from unseen.reports.figures.svg import WIDTH, Drawing, described, tagged

_HEIGHT = 196
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 10, 8, 34


def draw_curves(panel: CurvePanel) -> Markup:
    told = "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
        for line in panel.lines[:12]
        if line.points
    )
    if len(panel.lines) > 12:
        told += f"; and {len(panel.lines) - 12} more"
    drawing = Drawing(WIDTH, _HEIGHT, described(panel.title, told), "curves")
    x = Scale(panel.x.low, panel.x.high, _LEFT, WIDTH - _RIGHT, panel.x.bend)
    y = Scale(panel.y.low, panel.y.high, _HEIGHT - _BOTTOM, _TOP)
    for tick in ticks(panel.y, 4):
        drawing.line(_LEFT, y(tick), WIDTH - _RIGHT, y(tick), "grid")
        drawing.text(_LEFT - 5, y(tick) + 4, short(tick), "tick", "end")
    for tick in ticks(panel.x, 5):
        drawing.text(x(tick), _HEIGHT - _BOTTOM + 14, short(tick), "tick", "middle")
    drawing.line(_LEFT, _HEIGHT - _BOTTOM, WIDTH - _RIGHT, _HEIGHT - _BOTTOM, "axis")
    drawing.text((_LEFT + WIDTH - _RIGHT) / 2, _HEIGHT - 5, panel.x.label, "tick", "middle")
    if panel.diagonal:
        ends = (x(panel.x.low), y(panel.y.low), x(panel.x.high), y(panel.y.high))
        drawing.line(*ends, "diagonal")
    for line in panel.lines:
        if line.points:
            _curve(drawing, line, x, y, panel.dots)
    return drawing.finish()


def _curve(drawing: Drawing, line: Line, x: Scale, y: Scale, dots: bool) -> None:
    """The values travel along for the page's read-out; what lies outside is drawn at the edge."""
    places = [(x(a), min(max(y(b), y.end), y.start)) for a, b in line.points]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    kind = f"curve c{line.color}" + (" dashed" if line.dashed else "")
    values = json.dumps(
        [[round(a, 3), float(f"{b:.4g}")] for a, b in line.points], separators=(",", ":")
    )
    drawing.begin(
        class_=kind, data_tags=tagged(line.tags), data_label=line.label, data_values=values
    )
    drawing.shape("path", line.label, d=path)
    if dots or len(places) == 1:
        for (a, b), (step, value) in zip(places, line.points, strict=True):
            tip = f"{line.label}: {value:.4g} at {short(step)}"
            drawing.shape("circle", tip, cx=a, cy=b, r=3, class_="fill")
    drawing.end()


def draw_clouds(panel: ScatterPanel) -> Markup:
    told = "; ".join(f"{len(cloud.points)} of {cloud.label}" for cloud in panel.clouds)
    size = WIDTH - 20
    drawing = Drawing(WIDTH, size, described(panel.title, told), "scatter")
    drawing.shape("rect", x=1, y=1, width=WIDTH - 2, height=size - 2, rx=4, class_="frame")
    x, y = Scale(0, 1, 12, WIDTH - 12), Scale(0, 1, size - 12, 12)
    for cloud in panel.clouds:
        kind = "hollow" if cloud.hollow else "fill"
        radius = 2.6 if cloud.hollow else 2.2
        drawing.begin(class_=f"cloud c{cloud.color} {kind}s")
        drawing.shape("path", cloud.label, d=_circles(cloud.points, x, y, radius), class_=kind)
        drawing.end()
    return drawing.finish()


def _circles(points, x: Scale, y: Scale, radius: float) -> str:
    """All circles of a cloud as one path: a tenth of the size of single elements."""
    turn = f"a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0"
    return "".join(f"M{x(float(a)) - radius:.1f} {y(float(b)):.1f}{turn}" for a, b in points)
