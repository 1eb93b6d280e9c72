"""A forecast for images without labels: what terminal, web page and JSON show. No torch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.errors import DataError
from unseen.forecast.estimate import (
    LEVEL,
    NAMES,
    Combined,
    Differences,
    Reference,
    combine,
    find_differences,
    gaps,
    percent,
)
from unseen.forecast.profile import ModelOutputs, Profile
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.shown import Shown, html_table

HARDLY = 0.05
"""A fall in accuracy that nobody has to act upon."""
MUCH = 0.10
TELLS_APART = 0.9
"""AUC from which images count as another kind."""
UNLIKE_ALL = 0.98
"""AUC against the closest training domain from which images count as like none of them."""
ALIKE = 0.65
"""AUC up to which images count as those of the closest training domain."""
LARGE = 0.8
"""A standardised difference that counts as large (Cohen 1988)."""
SHIFTED_SHARES = 0.2
"""Total variation between class shares from which they count as shifted."""
FEW_IMAGES = 50
ENOUGH_TO_ADAPT = 200
"""Images without labels that are enough to adapt to."""


class ClassShare(NamedTuple):
    """The share of a class in the predictions and among the validation images."""

    name: str
    predicted: float
    training: float


class Advice(NamedTuple):
    """An action, the reason for it, and the command that does it or explains it."""

    action: str
    reason: str
    command: str


@dataclass(frozen=True)
class Forecast(Combined):
    """The accuracy to expect, and what speaks against trusting this number."""

    images: int
    source_accuracy: float
    """The accuracy on the validation images of the training domains."""
    references: tuple[Reference, ...]
    shares: tuple[ClassShare, ...]
    differences: Differences | None
    has_opinions: bool
    """True where the model predicts differently when it is told the domain."""

    @property
    def text(self) -> str:
        """The forecast with its interval, such as `68 %, 80 % interval 62 to 74`."""
        return f"{100 * self.accuracy:.0f} %, {self.interval}"

    @property
    def shares_by_shift(self) -> list[ClassShare]:
        """The classes, those whose share differs most from training first."""
        return sorted(self.shares, key=lambda each: -abs(each.predicted - each.training))

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest of the single estimates."""
        known = [each.accuracy for each in self.estimates if each.accuracy is not None]
        return min(known), max(known)

    @property
    def share_shift(self) -> float:
        """Total variation between predicted and training shares: 0 the same, 1 nothing alike."""
        return sum(abs(each.predicted - each.training) for each in self.shares) / 2

    @property
    def warnings(self) -> list[str]:
        """The reasons not to trust the forecast."""
        return list(_warnings(self))

    @property
    def advice(self) -> tuple[Advice, ...]:
        """The advice of all rules that apply, or to do nothing."""
        nothing = Advice(
            "No action",
            f"The forecast of {percent(self.accuracy)} is within {percent(HARDLY)} of the "
            f"{percent(self.source_accuracy)} on validation images, and nothing about these images "
            "stands out. Look again when the images change.",
            "unseen forecast --help",
        )
        return tuple(_advice(self)) or (nothing,)

    def as_json(self) -> dict[str, Any]:
        """Everything but arrays with a number for each image."""
        content = asdict(self)
        content |= {"level": LEVEL, "spread": self.spread, "warnings": self.warnings}
        content["shares"] = [each._asdict() for each in self.shares]
        content["advice"] = [each._asdict() for each in self.advice]
        for each in content["estimates"]:
            each["called"] = NAMES[each["name"]]
        if self.differences is not None:
            del content["differences"]["distance"]
            content["differences"]["closest"] = self.differences.closest.domain
        return content


def forecast(
    profile: Profile, outputs: ModelOutputs, references: Sequence[Reference] = ()
) -> Forecast:
    """Forecast from `outputs` of the same model on new images, scores as raw as in the profile."""
    if outputs.scores.ndim != 2 or outputs.scores.shape[1] != len(profile.classes):
        wanted = f"[images, {len(profile.classes)}]"
        raise DataError(f"scores should be {wanted}, got {outputs.scores.shape}")
    images, known = len(outputs.scores), profile.accuracy
    shares = outputs.shares.tolist(), profile.label_shares.tolist()
    return Forecast(
        **vars(combine(known, gaps(profile, outputs), references, images)),
        images=images,
        source_accuracy=known,
        references=tuple(references),
        shares=tuple(map(ClassShare, profile.classes, *shares)),
        differences=find_differences(profile, outputs),
        has_opinions=profile.disagreement is not None,
    )


def _warnings(made: Forecast) -> Iterator[str]:
    if not made.references:
        yield (
            "Without references nothing says how far estimates are off for this kind of images: "
            "the interval is a wide guess."
        )
    if made.images < FEW_IMAGES:
        yield f"Only {made.images} images: {FEW_IMAGES} or more give a steadier forecast."
    if made.share_shift > SHIFTED_SHARES:
        furthest = made.shares_by_shift[0]
        yield (
            f"Class shares are shifted: {furthest.name} is {percent(furthest.predicted)} of the "
            f"predictions and was {percent(furthest.training)} of the training domains' images."
        )
    if made.differences is not None and (made.differences.closest.auc or 0) > UNLIKE_ALL:
        closest = made.differences.closest
        yield (
            "These images are like those of no training domain: even from the closest one, "
            f"{closest.domain}, {made.differences.measured_by} tell them with AUC "
            f"{closest.auc:.2f}."
        )


def _advice(made: Forecast) -> Iterator[Advice]:
    if not made.references:
        yield Advice(
            "Train references",
            "Compare runs on the training domains alone, each left out in turn, and give their "
            "folder: --reference RUNS. They show how far estimates are off.",
            "unseen compare --help",
        )
    low, known = percent(made.low), percent(made.source_accuracy)
    lower, wide = made.source_accuracy - made.low > MUCH, made.high - made.low > 0.2
    if lower or wide:
        why = f"The interval from {low} to {percent(made.high)} is wide."
        if lower:
            why = f"Accuracy may be as low as {low}, after {known} on validation images."
        p = min(max(made.accuracy, 0.1), 0.9)
        number = math.ceil(1.96**2 * p * (1 - p) / 0.05**2 / 10) * 10
        yield Advice(
            "Collect labels here",
            f"{why} About {number} randomly chosen labels measure it to within 5 points, and can "
            "join the training images as another domain afterwards.",
            "unseen evaluate --help",
        )
    if made.differences is not None:
        yield from _advice_on_images(made, made.differences)
    if made.share_shift > SHIFTED_SHARES:
        yield Advice(
            "Check the class shares, and re-weight",
            f"Predictions and training classes differ in {percent(made.share_shift)} of the "
            "images. If this place really has other shares of classes, train with weights that fit "
            "it; if not, the model prefers some classes here, and predictions of these deserve a "
            "second look.",
            "unseen show folder/reweighting",
        )


def _advice_on_images(made: Forecast, differences: Differences) -> Iterator[Advice]:
    """Advice that follows from what is different about the images."""
    domain, auc = differences.closest.domain, differences.closest.auc
    falls = made.source_accuracy - made.accuracy > HARDLY
    if auc and auc >= TELLS_APART and falls and made.images >= ENOUGH_TO_ADAPT:
        yield Advice(
            "Adapt with DANN",
            f"By {differences.measured_by} these images can be told from every training domain "
            f"(AUC {auc:.2f} against {domain}, the closest), and there are {made.images} of them "
            "without labels: enough to train features that look alike.",
            "unseen show folder/dann",
        )
    for names, (action, remedy) in STATISTIC_ADVICE.items():
        # from the training domain nearest to it, in one direction from all of them
        of_all = [e for each in differences.domains for e in each.statistics]
        alike = ([each for each in of_all if each.statistic == name] for name in names)
        one_way = (each for each in alike if len({one.size > 0 for one in each}) == 1)
        nearest = (min(each, key=lambda one: abs(one.size)) for each in one_way)
        most = max(nearest, key=lambda each: abs(each.size), default=None)
        if most is not None and abs(most.size) > LARGE:
            direction = "higher" if most.size > 0 else "lower"
            reason = (
                f"The {most.statistic} is {direction} ({most.new:.3g} here, {most.domain:.3g} at "
                f"the nearest, {abs(most.size):.1f} standard deviations) than in any training "
                f"domain. {remedy}"
            )
            yield Advice(action, reason, "unseen show folder/aggregate")
    if auc is not None and auc <= ALIKE and len(differences.domains) > 1 and made.has_opinions:
        yield Advice(
            f"Treat them as {domain}",
            f"A classifier hardly tells them from {domain} (AUC {auc:.2f}), and this model "
            "predicts better when it knows the domain.",
            f"unseen predict --domain {domain}",
        )


STATISTIC_ADVICE = {
    ("brightness", "contrast", "colourfulness", "saturation", "warmth"): (
        "Train with stronger colour augmentation",
        "A higher augment.jitter, augment.randaugment or augment.random_convolution shows such "
        "images to the model.",
    ),
    ("width", "height", "sharpness", "noise", "blockiness", "bytes per pixel"): (
        "Check how the images are made",
        "Another device, export or compression is often undone more easily than learned; if it is "
        "here to stay, augment.randaugment varies the sharpness of training images.",
    ),
}
"""The advice where one of these statistics is like in no training domain."""


class Outlier(NamedTuple):
    """An image far from all validation images."""

    file: Path
    prediction: str
    confidence: float
    """Not calibrated."""
    distance: float
    """The distance to the nearest validation images, as a multiple of what is usual among these."""
    thumbnail: np.ndarray
    """uint8 `[side, side, 3]`."""


@dataclass(frozen=True)
class FileForecast(Shown):
    """A forecast about image files."""

    forecast: Forecast
    model: str
    files: tuple[Path, ...]
    """The files that the forecast is about."""
    problems: tuple[str, ...]
    """The reason why a file has no prediction, for each of them."""
    outliers: tuple[Outlier, ...]

    def records(self) -> list[dict[str, Any]]:
        """Return the single estimates, each as it is and calibrated on references."""
        return [asdict(each) for each in self.forecast.estimates]

    def plot(self) -> Figure:
        """Return the forecast with its interval, and below it the single estimates."""
        made = self.forecast
        interval = 100 * made.low, 100 * made.high
        guess = Mark("forecast", 100 * made.accuracy, interval=interval)
        known = Mark("validation images", 100 * made.source_accuracy)
        rows = [
            ChartRow("forecast", 1, (guess,), percent(made.accuracy)),
            ChartRow("validation", 0, (known,), percent(made.source_accuracy)),
        ]
        for each in made.estimates:
            if each.accuracy is not None:
                marks = [Mark("calibrated", 100 * each.accuracy)]
                if each.plain is not None and each.error is not None:
                    marks.append(Mark("as it is", 100 * each.plain, look="hollow"))
                rows.append(ChartRow(each.name, 2, tuple(marks), percent(each.accuracy)))
        return Figure(
            "estimates",
            "Forecast and single estimates",
            "The bar is the interval. Hollow: an estimate as it is; filled: calibrated on "
            "references.",
            (row_chart("", rows, Axis(0, 100, "accuracy, %")),),
        )

    def _repr_html_(self) -> str:
        made = self.forecast
        rows = [
            (NAMES[each.name], *map(percent, (each.plain, each.accuracy, each.weight)))
            for each in made.estimates
        ]
        header = ("estimate", "as it is", "calibrated", "weight")
        return html_table(f"Best guess {made.text}", header, rows)

    def as_json(self) -> dict[str, Any]:
        outliers = [each._asdict() | {"file": str(each.file)} for each in self.outliers]
        for each in outliers:
            del each["thumbnail"]
        about = {"outliers": outliers, "problems": list(self.problems)}
        return {"model": self.model, **self.forecast.as_json(), **about}
