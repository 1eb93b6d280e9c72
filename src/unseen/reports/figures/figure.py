"""Figures: panels under one title with a legend, in the page and as files for a paper."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, cast, get_args

from markupsafe import Markup
from PIL import Image

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.reports.figures import svg
from unseen.reports.figures.svg import LETTER, WIDTH, Drawing, Key

_GAP, _MARGIN = 20, 8
_TITLE = 22  # pixels that a panel's title takes
_KEY = 18  # and a row of its legend
_PIXELS = 100  # to an inch on paper: two panels in a row are seven inches wide


Kind = Literal["svg", "pdf", "png"]


@dataclass(frozen=True)
class Figure:
    """Panels under one title. `name` is the stem of its files, `about` says how to read it."""

    name: str
    title: str
    about: str
    panels: tuple[Drawing, ...]
    legend: tuple[Key, ...] = ()
    rule: str | None = None
    wide: bool = False
    small: bool = False
    """Whether the page shows small panels that one can enlarge."""

    def save(self, path: str | Path) -> None:
        """Writes it as a file that ends in .svg, .pdf or .png."""
        path = Path(path)
        kind = path.suffix.lstrip(".")
        if kind not in get_args(Kind):
            raise UnseenError(f"{path} should end in .svg, .pdf or .png")
        if kind != "svg":
            check_can_print()
        _write(self.draw(), path)

    def svg(self) -> str:
        """Returns the figure as the text of an SVG file that stands alone, on white."""
        return self.draw().as_file()

    _repr_svg_ = svg
    """Notebooks show a figure that is the last line of a cell."""

    def draw(self) -> Drawing:
        """Puts all panels into one drawing, two in a row, the legend below."""
        cells = [_with_title(panel) for panel in self.panels]
        across = 1 if self.wide else min(2, len(cells))
        drawn: list[Markup] = []
        top = float(_MARGIN)
        for start in range(0, len(cells), across):
            row = cells[start : start + across]
            for place, cell in enumerate(row):
                left = _MARGIN + place * (WIDTH + _GAP)
                drawn.append(svg.group([cell.content], at=(left, top)))
            top += max(cell.height for cell in row) + _GAP
        width = max(across * (WIDTH + _GAP) - _GAP, *(cell.width for cell in cells))
        legend, tall = _legend(self.legend, width)
        drawn.append(svg.group([legend], at=(_MARGIN, top)))
        height = top + (tall if self.legend else -_GAP) + _MARGIN
        return svg.drawing("figure", width + 2 * _MARGIN, height, "", self.title, drawn)


def _with_title(panel: Drawing) -> Drawing:
    """Puts a panel below its title and its own legend."""
    legend, tall = _legend(panel.keys, panel.width)
    content = [
        svg.text(0, 12, panel.title, "title"),
        svg.group([legend], at=(0, _TITLE)),
        svg.group([panel.content], at=(0, _TITLE + tall)),
    ]
    height = _TITLE + tall + panel.height
    return svg.drawing("", panel.width, height, "", panel.title, content)


def _legend(keys: Iterable[Key], width: float) -> tuple[Markup, float]:
    """Draws as many entries in a row as there is room for; returns how high they are, too."""
    drawn, x, y = [], 0.0, 0.0
    for key in keys:
        needed = 28 + len(key.label) * LETTER
        if x and x + needed > width:
            x, y = 0.0, y + _KEY
        drawn.append(svg.group([key.sample, svg.text(28, 10, key.label, "label")], at=(x, y)))
        x += needed + 14
    return Markup().join(drawn), y + _KEY if drawn else 0


def check_can_print() -> None:
    if not find_spec("typst"):
        raise UnseenError(
            "figures as PNG and PDF need the package 'typst', which is not installed: "
            "pip install 'unseen[figures]'"
        )


def write_figures(figures: Iterable[Figure], folder: Path) -> None:
    """Writes files of each figure, named by what it shows; equal figures make equal files."""
    check_can_print()
    for name, drawing in {figure.name: figure.draw() for figure in figures}.items():
        for kind in get_args(Kind):
            _write(drawing, folder / f"{name}.{kind}")


def _write(drawing: Drawing, path: Path) -> None:
    with atomic_file(path) as part:
        part.write_bytes(_printed(drawing, cast(Kind, path.suffix[1:]), 2 * _PIXELS))


def to_picture(drawing: Drawing) -> Image.Image:
    """Returns an image with a pixel for each unit of the drawing."""
    return Image.open(BytesIO(_printed(drawing, "png", _PIXELS))).convert("RGB")


def _printed(drawing: Drawing, kind: Kind, pixels: int) -> bytes:
    """Prints a drawing with so many pixels to an inch. Letters stay letters in a PDF; typst's own
    replace missing fonts."""
    source = drawing.as_file().encode()
    if kind == "svg":
        return source
    import typst

    page = (
        "#set page(width: auto, height: auto, margin: 0pt)\n#set document(date: none)\n"
        f'#image("drawing.svg", width: {drawing.width / _PIXELS:.4f}in)'
    )
    files: Any = {"main.typ": page.encode(), "drawing.svg": source}
    return typst.compile(files, format=kind, ppi=float(pixels))
