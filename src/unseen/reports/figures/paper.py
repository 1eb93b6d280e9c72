"""Figures as PNG, SVG and PDF files for a paper: panels side by side on white."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from unseen.reports.figures import shapes
from unseen.reports.figures.layout import draw
from unseen.reports.figures.panels import Figure, Key, Panel
from unseen.reports.figures.shapes import LETTER, WIDTH

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


def arranged(figure: Figure) -> shapes.Drawing:
    """All panels in one drawing, two in a row, the legend below."""
    cells = [_cell(panel) for panel in figure.panels]
    across = 1 if figure.wide else min(2, len(cells))
    drawn: list[shapes.Shape] = []
    top = 0.0
    for start in range(0, len(cells), across):
        row = cells[start : start + across]
        drawn += [
            shapes.Group(cell.shapes, at=(number * (WIDTH + _GAP), top))
            for number, cell in enumerate(row)
        ]
        top += max(cell.height for cell in row) + _GAP
    width = max(across * (WIDTH + _GAP) - _GAP, *(cell.width for cell in cells))
    legend = list(_legend(figure.legend, width, top))
    height = max([top - _GAP, *(text.y + 6 for text in legend if isinstance(text, shapes.Text))])
    everything = shapes.Group((*drawn, *legend), at=(_MARGIN, _MARGIN))
    return shapes.Drawing(
        width + 2 * _MARGIN, height + 2 * _MARGIN, "figure", figure.title, (everything,)
    )


def _cell(panel: Panel) -> shapes.Drawing:
    """A panel below its title and its own legend."""
    drawing = draw(panel)
    keys = list(_legend(getattr(panel, "keys", ()), drawing.width, _TITLE))
    top = max([_TITLE, *(text.y + 8 for text in keys if isinstance(text, shapes.Text))])
    title = shapes.Text(0, 12, panel.title, "title")
    drawn = (title, *keys, shapes.Group(drawing.shapes, at=(0, top)))
    return shapes.Drawing(drawing.width, top + drawing.height, "", panel.title, drawn)


def _legend(keys: Iterable[Key], width: float, top: float) -> Iterator[shapes.Shape]:
    """As many entries in a row as there is room for."""
    x, y = 0.0, top + 10
    for key in keys:
        needed = 28 + len(key.label) * LETTER
        if x and x + needed > width:
            x, y = 0.0, y + _KEY
        yield _sample(key, x, y - 4)
        yield shapes.Text(x + 28, y, key.label, "label")
        x += needed + 14


def _sample(key: Key, x: float, y: float) -> shapes.Group:
    match key.style:
        case "area":
            return shapes.Group((shapes.Rect(x + 4, y - 5, 14, 10, "fill"),), color=key.color)
        case "line" | "dashed":
            look = "curve dashed" if key.style == "dashed" else "curve"
            return shapes.Group((shapes.Curve(((x, y), (x + 22, y)), ""),), look, key.color)
        case "dot" | "hollow":
            look = "fill" if key.style == "dot" else "hollow"
            return shapes.Group((shapes.Circle(x + 11, y, 4, look),), color=key.color)
