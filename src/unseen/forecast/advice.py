"""What to do about new images: written rules, each with its condition, its reason and the page that
explains it. No torch."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from unseen.forecast.shares import SHIFTED_SHARES, share_shift

if TYPE_CHECKING:
    from unseen.forecast.differences import Difference
    from unseen.forecast.forecast import Forecast

HARDLY = 0.05
"""A fall in accuracy that nobody has to act upon."""
MUCH = 0.10
TELLS_APART = 0.9
"""AUC from which images count as another kind."""
LARGE = 0.8
"""A standardised difference that counts as large (Cohen 1988)."""
ENOUGH_TO_ADAPT = 200
"""Unlabelled images."""
LIGHT_AND_COLOUR = ("brightness", "contrast", "colourfulness", "saturation", "warmth")
AUGMENT = "settings.md#augment"
MAKING = ("width", "height", "sharpness", "noise", "blockiness", "bytes per pixel")


class Advice(NamedTuple):
    action: str
    reason: str
    page: str
    """Of the documentation."""


def advise(forecast: "Forecast") -> tuple[Advice, ...]:
    """All rules that apply, in order; the last one where no other does."""
    found = [advice for rule in RULES if (advice := rule(forecast)) is not None]
    return tuple(found) or (_no_action(forecast),)


def _no_action(forecast: "Forecast") -> Advice:
    return Advice(
        "No action",
        f"The forecast of {forecast.accuracy:.0%} is within {HARDLY:.0%} of the "
        f"{forecast.source_accuracy:.0%} on validation images, and nothing about these images "
        "stands out. Look again when the pictures change.",
        "forecast.md#what-to-do",
    )


def _collect_references(forecast: "Forecast") -> Advice | None:
    if forecast.references:
        return None
    return Advice(
        "Train references",
        "Nothing shows how far the estimates are off when a domain is left out. Compare runs on "
        "the training domains alone, each left out in turn, and give their folder: "
        "--reference RUNS.",
        "forecast.md#references",
    )


def _collect_labels(forecast: "Forecast") -> Advice | None:
    lower, wide = forecast.source_accuracy - forecast.low > MUCH, forecast.high - forecast.low > 0.2
    if not lower and not wide:
        return None
    p = min(max(forecast.accuracy, 0.1), 0.9)
    number = math.ceil(1.96**2 * p * (1 - p) / 0.05**2 / 10) * 10
    why = (
        f"Accuracy may be as low as {forecast.low:.0%}, after {forecast.source_accuracy:.0%} on "
        "validation images."
        if lower
        else f"The interval from {forecast.low:.0%} to {forecast.high:.0%} is wide."
    )
    return Advice(
        "Collect labels here",
        f"{why} About {number} randomly chosen labels measure it to within 5 points, and can join "
        "the training images as another domain afterwards.",
        "forecast.md#what-to-do",
    )


def _reweight(forecast: "Forecast") -> Advice | None:
    shift = share_shift(forecast.shares)
    if shift <= SHIFTED_SHARES:
        return None
    return Advice(
        "Check the class shares, and re-weight",
        f"Answers and training classes differ in {shift:.0%} of the images. If this place really "
        "has other shares of classes, train with weights that fit it; if not, the model prefers "
        "some classes here, and its answers with them deserve a second look.",
        "methods/reweighting.md",
    )


def _adapt(forecast: "Forecast") -> Advice | None:
    differences = forecast.differences
    auc = differences.closest.auc if differences is not None else None
    falls = forecast.source_accuracy - forecast.accuracy > HARDLY
    if differences is None or auc is None or auc < TELLS_APART or not falls:
        return None
    if forecast.images < ENOUGH_TO_ADAPT:
        return None
    return Advice(
        "Adapt with DANN",
        f"By {differences.measured_by} these images can be told from every training domain (AUC "
        f"{auc:.2f} against {differences.closest.domain}, the closest), and there are "
        f"{forecast.images} of them without labels: enough to train features that look alike.",
        "methods/dann.md",
    )


def _colour(forecast: "Forecast") -> Advice | None:
    return _about_pictures(
        forecast,
        LIGHT_AND_COLOUR,
        "Train with stronger colour augmentation",
        "A higher augment.jitter, augment.randaugment or augment.random_convolution shows such "
        "pictures to the model.",
    )


def _preparation(forecast: "Forecast") -> Advice | None:
    return _about_pictures(
        forecast,
        MAKING,
        "Check how the pictures are made",
        "Another device, export or compression is often undone more easily than learned; if it is "
        "here to stay, augment.randaugment varies the sharpness of training pictures.",
    )


def _about_pictures(
    forecast: "Forecast", names: tuple[str, ...], action: str, remedy: str
) -> Advice | None:
    """Where one of these statistics is unlike that of every training domain."""
    found = _different_everywhere(forecast, names)
    if found is None:
        return None
    return Advice(action, f"{_said(found)} than in any training domain. {remedy}", AUGMENT)


def _like_a_known_domain(forecast: "Forecast") -> Advice | None:
    differences = forecast.differences
    if differences is None or differences.closest.auc is None or differences.closest.auc > 0.65:
        return None
    if len(differences.domains) < 2:
        return None
    return Advice(
        f"Treat them as {differences.closest.domain}",
        f"A classifier hardly tells them from {differences.closest.domain} (AUC "
        f"{differences.closest.auc:.2f}). A model with opinions answers better when it is told: "
        f"unseen predict --domain {differences.closest.domain}.",
        "models.md",
    )


RULES: tuple[Callable[["Forecast"], Advice | None], ...] = (
    _collect_references,
    _collect_labels,
    _adapt,
    _colour,
    _preparation,
    _reweight,
    _like_a_known_domain,
)


def _different_everywhere(forecast: "Forecast", names: tuple[str, ...]) -> "Difference | None":
    """The statistic that differs most from the training domain nearest to it, in one direction from
    all of them; None where none differs much."""
    if forecast.differences is None:
        return None
    best: Difference | None = None
    for name in names:
        sizes = [
            one for each in forecast.differences.domains for one in each.statistics
            if one.statistic == name
        ]  # fmt: skip
        if not sizes or min(each.size for each in sizes) < 0 < max(each.size for each in sizes):
            continue
        least = min(sizes, key=lambda each: abs(each.size))
        if abs(least.size) > LARGE and (best is None or abs(least.size) > abs(best.size)):
            best = least
    return best


def _said(found: "Difference") -> str:
    direction = "higher" if found.size > 0 else "lower"
    return (
        f"The {found.statistic} is {direction} ({found.new:.3g} here, {found.domain:.3g} at the "
        f"nearest, {abs(found.size):.1f} standard deviations)"
    )
