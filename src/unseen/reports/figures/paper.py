"""Figures as PNG, SVG and PDF files for a paper: panels side by side on white."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from unseen.reports.figures.drawing import (
    LETTER,
    WIDTH,
    Circle,
    Curve,
    Drawing,
    Group,
    Rect,
    Shape,
    Text,
)
from unseen.reports.figures.layout import draw
from unseen.reports.figures.panels import Figure, Key, Panel

_GAP, _MARGIN = 20, 8
_TITLE = 22  # pixels that a panel's title takes
_KEY = 18  # and a row of its legend


def write_figures(figures: Iterable[Figure], folder: Path) -> list[Path]:
    """Each figure in three formats, named by what it shows; equal figures make equal files."""
    from unseen.reports.figures.matplotlib import write_drawing

    drawings = {figure.name: arranged(figure) for figure in figures}
    return [
        path for name, drawing in drawings.items() for path in write_drawing(drawing, folder / name)
    ]


def arranged(figure: Figure) -> Drawing:
    """All panels in one drawing, two in a row, the legend below."""
    cells = [_cell(panel) for panel in figure.panels]
    across = 1 if figure.wide else min(2, len(cells))
    shapes: list[Shape] = []
    top = 0.0
    for start in range(0, len(cells), across):
        row = cells[start : start + across]
        shapes += [
            Group(cell.shapes, at=(number * (WIDTH + _GAP), top)) for number, cell in enumerate(row)
        ]
        top += max(cell.height for cell in row) + _GAP
    width = max(across * (WIDTH + _GAP) - _GAP, *(cell.width for cell in cells))
    legend = list(_legend(figure.legend, width, top))
    height = max([top - _GAP, *(text.y + 6 for text in legend if isinstance(text, Text))])
    everything = Group((*shapes, *legend), at=(_MARGIN, _MARGIN))
    return Drawing(width + 2 * _MARGIN, height + 2 * _MARGIN, "figure", figure.title, (everything,))


def _cell(panel: Panel) -> Drawing:
    """A panel below its title and its own legend."""
    drawing = draw(panel)
    keys = list(_legend(getattr(panel, "keys", ()), drawing.width, _TITLE))
    top = max([_TITLE, *(text.y + 8 for text in keys if isinstance(text, Text))])
    title = Text(0, 12, panel.title, "title")
    shapes = (title, *keys, Group(drawing.shapes, at=(0, top)))
    return Drawing(drawing.width, top + drawing.height, "", panel.title, shapes)


def _legend(keys: Iterable[Key], width: float, top: float) -> Iterator[Shape]:
    """As many entries in a row as there is room for."""
    x, y = 0.0, top + 10
    for key in keys:
        needed = 28 + len(key.label) * LETTER
        if x and x + needed > width:
            x, y = 0.0, y + _KEY
        yield _sample(key, x, y - 4)
        yield Text(x + 28, y, key.label, "label")
        x += needed + 14


def _sample(key: Key, x: float, y: float) -> Group:
    match key.style:
        case "area":
            return Group((Rect(x + 4, y - 5, 14, 10, "fill"),), color=key.color)
        case "line" | "dashed":
            look = "curve dashed" if key.style == "dashed" else "curve"
            return Group((Curve(((x, y), (x + 22, y)), ""),), look, key.color)
        case "dot" | "hollow":
            look = "fill" if key.style == "dot" else "hollow"
            return Group((Circle(x + 11, y, 4, look),), color=key.color)
