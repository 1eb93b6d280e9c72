"""Shapes of an SVG that takes its colours from the page, in light and in dark."""

from collections.abc import Iterable

from markupsafe import Markup

WIDTH = 340  # of a panel; the page shows it near this size, so that letters keep theirs
LETTER = 5.9  # mean width of a letter at 11 px
_STEPS = 20  # shades of a heat map in page.css


class Drawing:
    """Collects shapes; every text and attribute is escaped."""

    def __init__(self, width: float, height: float, description: str, kind: str) -> None:
        self._parts = [
            Markup(
                '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}" '
                'preserveAspectRatio="xMidYMid meet">'
            ).format(kind, description, _number(width), _number(height))
        ]

    def shape(self, tag: str, tip: str = "", **attributes: object) -> None:
        """An element without text; `tip` shows when one points at it."""
        inner = Markup("<title>{}</title>").format(tip) if tip else ""
        self._parts.append(Markup("<{0}{1}>{2}</{0}>").format(tag, _written(attributes), inner))

    def text(self, x: float, y: float, text: str, *classes: str, tip: str = "") -> None:
        inner = Markup("<title>{}</title>").format(tip) if tip else ""
        place = _written({"x": x, "y": y, "class_": " ".join(classes) or None})
        self._parts.append(Markup("<text{}>{}{}</text>").format(place, text, inner))

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.shape("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def begin(self, **attributes: object) -> None:
        self._parts.append(Markup("<g{}>").format(_written(attributes)))

    def end(self) -> None:
        self._parts.append(Markup("</g>"))

    def finish(self) -> Markup:
        return Markup("").join([*self._parts, Markup("</svg>")])


def tagged(tags: Iterable[str]) -> str | None:
    """Marks what the page's run chooser can hide."""
    return " ".join(tags) or None


def fitted(text: str, width: float) -> str:
    """As much of a text as there is room for: its middle goes, for names differ at either end."""
    room = max(int(width / LETTER), 3)
    if len(text) <= room:
        return text
    end = (room - 1) // 2
    return text[: room - 1 - end] + "…" + text[len(text) - end :]


def label_width(labels: Iterable[str], most: float) -> float:
    return min(max((len(label) for label in labels), default=0) * LETTER + 8, most)


def shade(strength: float) -> str:
    """The classes of a shade between the page's paper (0) and its full colour (1)."""
    return f"shade h{round(min(max(strength, 0.0), 1.0) * _STEPS)}"


def _written(attributes: dict[str, object]) -> Markup:
    parts = []
    for name, value in attributes.items():
        if value is None:
            continue
        text = _number(value) if isinstance(value, float | int) else value
        parts.append(Markup(' {}="{}"').format(Markup(name.rstrip("_").replace("_", "-")), text))
    return Markup("").join(parts)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def described(title: str, rest: str) -> str:
    """The text for those who do not see the figure."""
    return f"{title}: {rest}" if title else rest
