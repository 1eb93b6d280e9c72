"""Forecast the accuracy of a model on images of which no label is known. No torch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from unseen.errors import DataError
from unseen.forecast.advice import Advice, advise
from unseen.forecast.combine import LEVEL, Estimate, Reference, combine
from unseen.forecast.differences import Differences, find_differences
from unseen.forecast.estimates import NAMES, gaps
from unseen.forecast.profile import Observed, Profile
from unseen.forecast.shares import SHIFTED_SHARES, ClassShare, class_shares, share_shift

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
