"""Drawings as SVG in the page, which gives each look its colours, in light and in dark."""

import base64
import io
import json
from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from unseen.reports.figures import shapes

_STEPS = 20  # shades of a heat map in page.css


def to_svg(drawing: shapes.Drawing) -> Markup:
    """Every text and attribute is escaped."""
    size = f"0 0 {_number(drawing.width)} {_number(drawing.height)}"
    head = Markup(
        '<svg class="{}" role="img" aria-label="{}" viewBox="{}" '
        'preserveAspectRatio="xMidYMid meet">'
    ).format(drawing.kind, drawing.description, size)
    return Markup("").join([head, *map(_shape, drawing.shapes), Markup("</svg>")])


def _shape(shape: shapes.Shape) -> Markup:
    match shape:
        case shapes.Rect(x, y, width, height, look, tip, rounding):
            place = {"x": x, "y": y, "width": width, "height": height, "rx": rounding}
            return _element("rect", place, look, tip)
        case shapes.Circle(x, y, radius, look, tip):
            return _element("circle", {"cx": x, "cy": y, "r": radius}, look, tip)
        case shapes.Line(x1, y1, x2, y2, look):
            return _element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2}, look)
        case shapes.Curve(points, tip):
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            return _element("path", {"d": path}, "", tip)
        case shapes.Dots(_, _, look, tip):
            return _element("path", {"d": _circles(shape)}, look, tip)
        case shapes.Image(x, y, size, pixels, tip):
            place = {"x": x, "y": y, "width": size, "height": size, "href": embedded(pixels)}
            return _element("image", place, "", tip)
        case shapes.Text():
            return _text(shape)
        case shapes.Group():
            return _group(shape)


def _text(text: shapes.Text) -> Markup:
    look = text.look if text.anchor == "start" else f"{text.look} {text.anchor}"
    turned = f"translate({text.x:.1f} {text.y:.1f}) rotate({text.angle:g})" if text.angle else None
    place = {"transform": turned} if turned else {"x": text.x, "y": text.y}
    return _element("text", place, look, text.tip, text.text)


def _group(group: shapes.Group) -> Markup:
    """Values travel along for the page's read-out."""
    values = [[round(step, 3), float(f"{value:.4g}")] for step, value in group.values]
    x, y = group.at
    color = "" if group.color is None else f" c{group.color}"
    about = {
        "data-tags": " ".join(group.tags) or None,
        "data-label": group.label or None,
        "data-values": json.dumps(values, separators=(",", ":")) if values else None,
        "transform": f"translate({x:g} {y:g})" if x or y else None,
        "style": f"--number: {group.letters:.1f}px" if group.letters else None,
    }
    inner = Markup("").join(map(_shape, group.shapes))
    return _element("g", about, group.look + color, inner=inner)


def _circles(dots: shapes.Dots) -> str:
    """All circles as one path: a tenth of the size of single elements."""
    r = dots.radius
    turn = f"a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
    return "".join(f"M{x - r:.1f} {y:.1f}{turn}" for x, y in dots.points)


def _element(
    tag: str, place: Mapping[str, object], look: str | shapes.Shade, tip: str = "", inner: str = ""
) -> Markup:
    """`tip` shows when one points at it."""
    if isinstance(look, shapes.Shade):
        step = round(min(max(look.strength, 0.0), 1.0) * _STEPS)
        look = f"shade h{step} negative" if look.negative else f"shade h{step}"
    written = Markup("").join(
        Markup(' {}="{}"').format(name, _number(value) if isinstance(value, float | int) else value)
        for name, value in {**place, "class": look.strip() or None}.items()
        if value is not None
    )
    title = Markup("<title>{}</title>").format(tip) if tip else ""
    return Markup("<{0}{1}>{2}{3}</{0}>").format(tag, written, inner, title)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def embedded(pixels: np.ndarray) -> str:
    """An image as a data: address; JPEG for photographs, PNG for what is small anyway."""
    from PIL import Image as Pillow

    out = io.BytesIO()
    small = pixels.shape[0] <= 40
    image = Pillow.fromarray(pixels)
    image.save(out, "PNG", optimize=True) if small else image.save(out, "JPEG", quality=82)
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"
