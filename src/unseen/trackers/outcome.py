"""What is sent of a finished run: final numbers, the table of its views, confusion matrices."""

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unseen.records.folder import safe_name

TABLE_HEADER = ("view", "domain", "accuracy", "calibration error", "images")

_CELL, _MARGIN, _LETTERS = 34, 90, 12
_PALE, _FULL = np.array([247, 251, 255]), np.array([8, 48, 107])


def final_numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """By view and domain, under the run's own selection rule."""
    found: dict[str, float] = {}
    for view, domains in _views(result).items():
        if not domains:
            continue
        for domain, summary in domains.items():
            found[f"final/{view}/{domain}/accuracy"] = summary["accuracy"]
            found[f"final/{view}/{domain}/ece"] = summary["ece"]
        accuracies = [summary["accuracy"] for summary in domains.values()]
        found[f"final/{view}/mean accuracy"] = fmean(accuracies)
        found[f"final/{view}/worst accuracy"] = min(accuracies)
    return found


def final_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Under `TABLE_HEADER`."""
    return [
        (
            view,
            domain,
            f"{summary['accuracy']:.1%}",
            f"{summary['ece']:.1%}",
            str(summary["count"]),
        )
        for view, domains in _views(result).items()
        for domain, summary in domains.items()
    ]


def confusion_figures(result: Mapping[str, Any]) -> Iterator[tuple[str, Image.Image]]:
    """A matrix for each unseen domain."""
    for domain, summary in _views(result)["out_of_domain"].items():
        yield (
            f"confusion-{safe_name(domain)}",
            draw_confusion(np.array(summary["confusion"]), result["classes"]),
        )


def draw_confusion(counts: np.ndarray, classes: list[str]) -> Image.Image:
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


def _views(result: Mapping[str, Any]) -> dict[str, Any]:
    return result["results"][result["selection"]]["views"]
