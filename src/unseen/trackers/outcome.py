"""What is sent of a finished run: final numbers, the table of its views, confusion matrices."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unseen.records.folder import safe_name
from unseen.records.result import RunResult

TABLE_HEADER = ("view", "domain", "accuracy", "calibration error", "images")

_CELL, _MARGIN, _LETTERS = 34, 90, 12
_PALE, _FULL = np.array([247, 251, 255]), np.array([8, 48, 107])


def final_numbers(result: RunResult) -> dict[str, float]:
    """By view and domain, under the run's own selection rule."""
    found: dict[str, float] = {}
    for view, domains in result.under(result.selection).views.items():
        if not domains:
            continue
        for domain, each in domains.items():
            found[f"final/{view}/{domain}/accuracy"] = each.accuracy
            found[f"final/{view}/{domain}/ece"] = each.calibration_error
        accuracies = [each.accuracy for each in domains.values()]
        found[f"final/{view}/mean accuracy"] = fmean(accuracies)
        found[f"final/{view}/worst accuracy"] = min(accuracies)
    return found


def final_rows(result: RunResult) -> list[tuple[str, ...]]:
    """Under `TABLE_HEADER`."""
    return [
        (
            view,
            domain,
            f"{each.accuracy:.1%}",
            f"{each.calibration_error:.1%}",
            str(each.images),
        )
        for view, domains in result.under(result.selection).views.items()
        for domain, each in domains.items()
    ]


def confusion_figures(result: RunResult) -> Iterator[tuple[str, Image.Image]]:
    """A matrix for each unseen domain."""
    for domain, each in result.view(result.selection, "out_of_domain").items():
        yield (
            f"confusion-{safe_name(domain)}",
            draw_confusion(each.confusion, result.classes),
        )


def draw_confusion(counts: np.ndarray, classes: Sequence[str]) -> Image.Image:
    """True classes as rows, answers as columns; the darker, the larger the share of its row."""
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    colours = _PALE + shares[..., None] * (_FULL - _PALE)
    cells = colours.round().astype(np.uint8).repeat(_CELL, axis=0).repeat(_CELL, axis=1)
    side = _MARGIN + _CELL * len(classes)
    image = Image.new("RGB", (side, side), "white")
    image.paste(Image.fromarray(cells), (_MARGIN, _MARGIN))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(_LETTERS)
    for number, name in enumerate(classes):
        middle = _MARGIN + _CELL * number + _CELL // 2
        draw.text((_MARGIN - 6, middle), name[:12], "black", font, anchor="rm")
        draw.text((middle, _MARGIN - 6), name[:5], "black", font, anchor="mb")
    for (row, column), count in np.ndenumerate(counts):
        place = tuple(_MARGIN + _CELL * at + _CELL // 2 for at in (column, row))
        colour = "white" if shares[row, column] > 0.5 else "black"
        draw.text(place, str(count), colour, font, anchor="mm")
    return image
