"""Drawings as SVG: places and sizes are written here, `figure.css` says how each class looks."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from markupsafe import Markup, escape

from unseen.reports.text import shortened

WIDTH = 340  # pixels of a panel; the page shows it near this size, so that letters keep theirs
LETTER = 5.9  # mean width of a letter at 11 pixels
STYLE = Path(__file__).parent


class Key(NamedTuple):
    """An entry of a legend. A colour is a number: a place in the palette, the same for a method in
    all figures."""

    label: str
    color: int
    style: Literal["area", "line", "dashed", "dot", "hollow"] = "area"
    tags: tuple[str, ...] = ()

    @property
    def sample(self) -> Markup:
        """What the entry looks like in the figure, 22 pixels wide and 12 high."""
        shape, look = circle(11, 6, 4, "fill" if self.style == "dot" else "hollow"), ""
        if self.style in ("line", "dashed"):
            shape, look = path(((1, 6), (21, 6))), "curve" + " dashed" * (self.style == "dashed")
        elif self.style == "area":
            shape = rect(4, 1, 14, 10, "fill")
        return group([shape], look, self.color)


class Picture(NamedTuple):
    """An image as a data: address, with a caption."""

    address: str
    caption: str
    description: str
    tall: float = 1.0
    """Its height, as a multiple of its width."""


class Drawing(NamedTuple):
    """A picture of known size, a panel of a figure; `description` is for those who do not see
    it."""

    title: str
    width: float
    height: float
    kind: str
    description: str
    content: Markup
    keys: tuple[Key, ...] = ()
    """Its own legend."""
    pictures: tuple[Picture, ...] = ()
    """What a page shows in its place: images that flow with the width of the screen."""

    def in_page(self) -> Markup:
        """Returns the drawing as a part of a page, which brings its style."""
        about, box = self.description, self._box()
        return element(
            "svg", self.kind, "", self.content, role="img", aria_label=about, viewBox=box
        )

    def as_file(self) -> str:
        """Returns the drawing as a file that stands alone, on white."""
        width, height, box = self.width, self.height, self._box()
        white = element("rect", width=width, height=height, fill="#ffffff")
        content = element("style", inner=Markup(paper_style())) + white + self.content
        space = "http://www.w3.org/2000/svg"
        file = element("svg", "", "", content, xmlns=space, width=width, height=height, viewBox=box)
        return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", file)

    def _box(self) -> str:
        return f"0 0 {_number(self.width)} {_number(self.height)}"


def drawing(
    kind: str, width: float, height: float, title: str, details: str, shapes: Iterable[Markup]
) -> Drawing:
    """Returns the shapes as a drawing, whose description is the title and the details."""
    description = f"{title}: {details}" if title else details
    return Drawing(title, width, height, kind, description, Markup().join(shapes))


@cache
def paper_style() -> str:
    """Returns the style of drawings with the light palette written out, for programs that know no
    variables."""
    palette = (STYLE / "palette.css").read_text(encoding="utf-8").partition("@media")[0]
    colors = dict(re.findall(r"--([\w-]+): (#\w+);", palette)) | {"surface": "#ffffff"}
    rules = (STYLE / "figure.css").read_text(encoding="utf-8")
    return re.sub(r"var\(--([\w-]+)\)", lambda found: colors[found[1]], rules)


def element(
    tag: str, look: str = "", tip: str = "", inner: str = "", **about: float | str | None
) -> Markup:
    """Makes an element with escaped attributes, those that are None left out; `fill_opacity` is
    `fill-opacity`. `look` is its class, `tip` shows when one points at it."""
    about["class"] = look or None
    written = "".join(
        f' {name.replace("_", "-")}="{escape(v if isinstance(v, str) else _number(v))}"'
        for name, v in about.items()
        if v is not None
    )
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return Markup(f"<{tag}{written}>{escape(inner)}{title}</{tag}>")


def rect(
    x: float, y: float, width: float, height: float, look: str, tip: str = "", **about: Any
) -> Markup:
    """Draws a rectangle. `fill_opacity`: from the paper (0) to the full colour (1)."""
    about = {"rx": 2} | about
    return element("rect", look, tip, x=x, y=y, width=width, height=height, **about)


def circle(x: float, y: float, radius: float, look: str, tip: str = "", **about: Any) -> Markup:
    return element("circle", look, tip, cx=x, cy=y, r=radius, **about)


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> Markup:
    return element("line", look, x1=x1, y1=y1, x2=x2, y2=y2)


def path(points: Iterable[tuple[float, float]], tip: str = "") -> Markup:
    return element("path", tip=tip, d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points))


def text(x: float, y: float, words: str, look: str, tip: str = "", angle: float = 0.0) -> Markup:
    """Writes words; `middle` or `end` in their look: that is where x stands."""
    if angle:
        turned = f"translate({x:.1f} {y:.1f}) rotate({angle:g})"
        return element("text", look, tip, words, transform=turned)
    return element("text", look, tip, words, x=x, y=y)


def group(
    content: Iterable[Markup],
    look: str = "",
    color: int | None = None,
    tags: Sequence[str] = (),
    at: tuple[float, float] = (0, 0),
    values: Iterable[tuple[float, ...]] = (),
    **about: Any,
) -> Markup:
    """Groups shapes of one colour (a place in the palette) that any of `tags` hides together. The
    page's script reads out `data_label` and `values`."""
    rounded = [[round(step, 3), float(f"{value:.4g}"), *more] for step, value, *more in values]
    return element(
        "g",
        look if color is None else f"{look} c{color}".strip(),
        inner=Markup().join(content),
        data_tags=" ".join(tags) or None,
        data_values=json.dumps(rounded, separators=(",", ":")) if rounded else None,
        transform=f"translate({at[0]:g} {at[1]:g})" if any(at) else None,
        **about,
    )


def fitted(words: str, width: float) -> str:
    """Returns as much of a text as there is room for."""
    return shortened(words, max(int(width / LETTER), 3))


def label_width(labels: Iterable[str], most: float) -> float:
    return min(max((len(label) for label in labels), default=0) * LETTER + 8, most)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
