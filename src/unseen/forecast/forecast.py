"""A forecast for image files: what terminal, web page and JSON show. No torch."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from unseen.forecast.estimate import SHIFTED_SHARES, share_shift

if TYPE_CHECKING:
    from unseen.forecast.differences import Difference

    pass
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unseen.errors import DataError
from unseen.forecast.differences import Differences, find_differences
from unseen.forecast.estimate import (
    LEVEL,
    NAMES,
    ClassShare,
    Estimate,
    Reference,
    class_shares,
    combine,
    gaps,
)
from unseen.forecast.profile import Observed, Profile

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


FEW_IMAGES = 50
UNLIKE_ALL = 0.98
"""AUC against the closest training domain from which images count as like none of them."""


class Forecast(NamedTuple):
    """How many answers will be right, and what speaks against trusting this number."""

    accuracy: float
    low: float
    high: float
    images: int
    source_accuracy: float
    """On the validation images of the training domains."""
    estimates: tuple[Estimate, ...]
    references: tuple[Reference, ...]
    error: float
    shares: tuple[ClassShare, ...]
    warnings: tuple[str, ...]
    differences: Differences | None
    advice: tuple[Advice, ...]

    @property
    def text(self) -> str:
        """`68 % ± 6`."""
        return f"{100 * self.accuracy:.0f} % ± {100 * self.half_width:.0f}"

    @property
    def half_width(self) -> float:
        """Of the interval, before it was cut at 0 and 1."""
        return max(self.high - self.accuracy, self.accuracy - self.low)

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest of the single estimates."""
        known = [each.accuracy for each in self.estimates if each.accuracy is not None]
        return min(known), max(known)

    def as_json(self) -> dict[str, Any]:
        """Everything but arrays by image."""
        content = self._asdict()
        del content["differences"]
        content["level"] = LEVEL
        content["spread"] = self.spread
        content["half_width"] = self.half_width
        content["estimates"] = [
            {**each._asdict(), "called": NAMES[each.name]} for each in self.estimates
        ]
        for key in ("references", "shares", "advice"):
            content[key] = [each._asdict() for each in content[key]]
        if self.differences is not None:
            content["differences"] = _differences_json(self.differences)
        return content


def forecast(
    profile: Profile, observed: Observed, references: Sequence[Reference] = ()
) -> Forecast:
    """`observed` are the answers of the same model on new images, scores as raw as in the
    profile."""
    if observed.scores.ndim != 2 or observed.scores.shape[1] != len(profile.classes):
        raise DataError(
            f"scores should be [images, {len(profile.classes)}], got {observed.scores.shape}"
        )
    if len(observed.scores) == 0:
        raise DataError("there are no images to forecast the accuracy on")
    images, source_accuracy = len(observed.scores), profile.accuracy
    combined = combine(source_accuracy, gaps(profile, observed), references, images)
    shares = class_shares(profile, observed)
    differences = find_differences(profile, observed)
    draft = Forecast(
        combined.accuracy,
        combined.low,
        combined.high,
        images,
        source_accuracy,
        combined.estimates,
        tuple(references),
        combined.error,
        shares,
        _warnings(images, shares, references, differences),
        differences,
        (),
    )
    return draft._replace(advice=advise(draft))


def _warnings(
    images: int,
    shares: Sequence[ClassShare],
    references: Sequence[Reference],
    differences: Differences | None,
) -> tuple[str, ...]:
    found: list[str] = []
    if not references:
        found.append(
            "Without references nothing says how far estimates are off for this kind of images: "
            "the interval is a wide guess. Compare runs that leave each training domain out in "
            "turn, and name their folder with --reference."
        )
    if images < FEW_IMAGES:
        found.append(f"Only {images} images: {FEW_IMAGES} or more give a steadier forecast.")
    if share_shift(shares) > SHIFTED_SHARES:
        furthest = max(shares, key=lambda each: abs(each.predicted - each.training))
        found.append(
            f"Class shares are shifted: {furthest.name} is {furthest.predicted:.0%} of the answers "
            f"and was {furthest.training:.0%} of the training domains' images. Either this place "
            "has other classes, or the model prefers some of them here."
        )
    auc = differences.closest.auc if differences is not None else None
    if differences is not None and auc is not None and auc > UNLIKE_ALL:
        found.append(
            f"These images are like those of no training domain: even from the closest one, "
            f"{differences.closest.domain}, {differences.measured_by} tell them with AUC "
            f"{auc:.2f}."
        )
    return tuple(found)


def _differences_json(differences: Differences) -> dict[str, Any]:
    return {
        "measured_by": differences.measured_by,
        "auc": differences.auc,
        "closest": differences.closest.domain,
        "domains": [
            {**each._asdict(), "statistics": [one._asdict() for one in each.statistics]}
            for each in differences.domains
        ],
    }


class Strange(NamedTuple):
    """An image far from all validation images."""

    file: Path
    answer: str
    confidence: float
    """Not calibrated."""
    distance: float
    """To the nearest validation images, as a multiple of what is usual among these."""
    thumbnail: np.ndarray
    """uint8 `[side, side, 3]`."""


class FileForecast(NamedTuple):
    forecast: Forecast
    model: str
    files: tuple[Path, ...]
    """Those that the forecast is about."""
    problems: tuple[str, ...]
    """Of files that cannot be read."""
    strangest: tuple[Strange, ...]

    def as_json(self) -> dict[str, Any]:
        strangest = [
            {
                "file": str(each.file),
                "answer": each.answer,
                "confidence": each.confidence,
                "distance": each.distance,
            }
            for each in self.strangest
        ]
        return {
            "model": self.model,
            **self.forecast.as_json(),
            "strangest": strangest,
            "problems": list(self.problems),
        }
