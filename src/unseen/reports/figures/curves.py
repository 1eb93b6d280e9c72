"""Curves over training steps, and clouds of points."""

from collections.abc import Iterator

from unseen.reports.figures import shapes
from unseen.reports.figures.panels import CurvePanel, ScatterPanel
from unseen.reports.figures.panels import Line as Values
from unseen.reports.figures.scales import Scale, short, ticks
from unseen.reports.figures.shapes import WIDTH, described

_HEIGHT = 196
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, WIDTH - 10, 8, _HEIGHT - 34


def draw_curves(panel: CurvePanel) -> shapes.Drawing:
    told = "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
        for line in panel.lines[:12]
        if line.points
    )
    if len(panel.lines) > 12:
        told += f"; and {len(panel.lines) - 12} more"
    drawn = tuple(_curve_shapes(panel))
    return shapes.Drawing(WIDTH, _HEIGHT, "curves", described(panel.title, told), drawn)


def _curve_shapes(panel: CurvePanel) -> Iterator[shapes.Shape]:
    x = Scale(panel.x.low, panel.x.high, _LEFT, _RIGHT, panel.x.bend)
    y = Scale(panel.y.low, panel.y.high, _BOTTOM, _TOP)
    for tick in ticks(panel.y, 4):
        yield shapes.Line(_LEFT, y(tick), _RIGHT, y(tick), "grid")
        yield shapes.Text(_LEFT - 5, y(tick) + 4, short(tick), "tick", "end")
    for tick in ticks(panel.x, 5):
        yield shapes.Text(x(tick), _BOTTOM + 14, short(tick), "tick", "middle")
    yield shapes.Line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
    yield shapes.Text((_LEFT + _RIGHT) / 2, _HEIGHT - 5, panel.x.label, "tick", "middle")
    if panel.y.label:
        yield shapes.Text(10, (_TOP + _BOTTOM) / 2, panel.y.label, "tick", "middle", angle=-90)
    if panel.diagonal:
        yield shapes.Line(x.start, y.start, x.end, y.end, "diagonal")
    for line in panel.lines:
        if line.points:
            yield _curve(line, x, y, panel.dots)


def _curve(line: Values, x: Scale, y: Scale, dots: bool) -> shapes.Group:
    """What lies outside is drawn at the edge."""
    places = tuple((x(a), min(max(y(b), y.end), y.start)) for a, b in line.points)
    drawn: list[shapes.Shape] = [shapes.Curve(places, line.label)]
    if dots or len(places) == 1 or line.half_widths:
        for (a, b), (step, value) in zip(places, line.points, strict=True):
            tip = f"{line.label}: {value:.4g} at {short(step)}"
            drawn.append(shapes.Circle(a, b, 3, "fill", tip))
    for (step, value), half in zip(line.points, line.half_widths, strict=False):
        if half is not None:
            drawn += _interval(x(step), y, value - half, value + half)
    look = "curve dashed" if line.dashed else "curve"
    return shapes.Group(tuple(drawn), look, line.color, line.tags, line.label, line.points)


def _interval(x: float, y: Scale, low: float, high: float) -> Iterator[shapes.Shape]:
    """Upright, with caps; cut at the edge, and then without its cap."""
    ends = [min(max(y(value), y.end), y.start) for value in (low, high)]
    yield shapes.Line(x, ends[0], x, ends[1], "whisker own")
    for value, end in zip((low, high), ends, strict=True):
        if y(value) == end:
            yield shapes.Line(x - 4, end, x + 4, end, "whisker own")


def draw_clouds(panel: ScatterPanel) -> shapes.Drawing:
    told = "; ".join(f"{len(cloud.points)} of {cloud.label}" for cloud in panel.clouds)
    size = WIDTH - 20
    x, y = Scale(0, 1, 12, WIDTH - 12), Scale(0, 1, size - 12, 12)
    drawn: list[shapes.Shape] = [shapes.Rect(1, 1, WIDTH - 2, size - 2, "frame", rounding=4)]
    for cloud in panel.clouds:
        look, radius = ("hollow", 2.6) if cloud.hollow else ("fill", 2.2)
        places = tuple((x(a), y(b)) for a, b in cloud.points.tolist())
        dots = shapes.Dots(places, radius, look, cloud.label)
        drawn.append(shapes.Group((dots,), "cloud", cloud.color))
    return shapes.Drawing(WIDTH, size, "scatter", described(panel.title, told), tuple(drawn))
