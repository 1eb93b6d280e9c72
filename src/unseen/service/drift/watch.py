"""Watches whether images are still like those that the model was validated on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from unseen.forecast.combine import Combined, Reference, combine
from unseen.forecast.estimates import gaps
from unseen.service.drift.differences import FEWEST, LEVELS, Level, compare
from unseen.service.drift.observations import Observations, Window, references
from unseen.service.drift.strangeness import Strangeness, StrangenessScale
from unseen.service.metrics import Metric, gauge
from unseen.serving.predictor import Predictor

WINDOW = 500
_WITHOUT_PROFILE = (
    "this model carries no profile of its validation images, so there is nothing to compare with; "
    "export or save it again from its run folder"
)


class MeasureReport(BaseModel):
    """One measure of the last images beside validation images."""

    measure: str
    about: str
    reference: float | None = Field(description="mean of validation images")
    now: float | None = Field(description="mean of the last images")
    difference: float = Field(description="0: as in validation, 1: nothing alike")
    by_chance: float = Field(description="differences up to this one mean nothing")
    level: Level


class ClassReport(BaseModel):
    """How often a class was predicted."""

    name: str = Field(alias="class")
    reference: float
    now: float


class ForecastReport(BaseModel):
    """How many of the last answers are right, estimated without labels."""

    accuracy: float
    low: float
    high: float
    source_accuracy: float = Field(description="on validation images")
    references: int = Field(description="runs that showed how far such estimates are off")
    text: str


class DriftReport(BaseModel):
    """The last images beside the validation images that are most like them."""

    level: Level
    images: int = Field(description="number of last images that are compared")
    total: int = Field(description="images answered since the service started")
    compared_with: str | None = None
    measures: list[MeasureReport] = []
    classes: list[ClassReport] = []
    forecast: ForecastReport | None = None
    note: str | None = None


class DriftWatch:
    """Keeps numbers of the last images, never the images."""

    def __init__(
        self, predictor: Predictor, window: int = WINDOW, known: Sequence[Reference] = ()
    ) -> None:
        """`known`: runs that show how far forecasts are off."""
        self._profile = profile = predictor.profile
        self._known = known
        self._forecast: tuple[int, dict[str, Any] | None] = (0, None)
        self._classes = predictor.classes
        self._references: Mapping[str, Observations] = (
            {} if profile is None else references(profile, predictor.temperature)
        )
        self._window = Window(window, len(predictor.classes), predictor.temperature)
        self._scale = StrangenessScale.of(profile)

    def strangeness(self, statistics: np.ndarray) -> Strangeness | None:
        return None if self._scale is None else self._scale(statistics)

    def add(
        self, probabilities: np.ndarray, opinions: np.ndarray | None, statistics: np.ndarray
    ) -> None:
        self._window.add(probabilities, opinions, statistics)

    def now(self) -> tuple[Observations, int]:
        """A copy to be reported on in a thread, and the number of images since the start."""
        return self._window.copy(), self._window.total

    def report(self, now: Observations, total: int) -> dict[str, Any]:
        """As `DriftReport` says."""
        images = len(now.scores)
        nothing = {"level": "too few images", "images": images, "total": total}
        if not self._references:
            return {**nothing, "note": _WITHOUT_PROFILE}
        if not images:
            return nothing
        found = compare(now, self._references)
        before = self._references[found.compared_with].predicted_shares()
        shares = zip(self._classes, before, now.predicted_shares(), strict=True)
        return {
            **nothing,
            "level": found.level,
            "compared_with": found.compared_with,
            "measures": [each._asdict() for each in found.differences],
            "classes": [
                {"class": name, "reference": float(then), "now": float(after)}
                for name, then, after in shares
            ],
            "forecast": self._forecast_of(now, total),
        }

    def _forecast_of(self, now: Observations, total: int) -> dict[str, Any] | None:
        """Again after every tenth of the window: it takes longer than all the rest."""
        profile, images = self._profile, len(now.scores)
        if profile is None or images < FEWEST:
            return None
        made_at, made = self._forecast
        if made is None or total - made_at >= max(1, self._window.length // 10):
            found = combine(profile.accuracy, gaps(profile, now.observed()), self._known, images)
            made = {
                "accuracy": found.accuracy,
                "low": found.low,
                "high": found.high,
                "source_accuracy": profile.accuracy,
                "references": len(self._known),
                "text": _about(found, images, profile.accuracy, bool(self._known)),
            }
            self._forecast = (total, made)
        return made


def _about(found: Combined, images: int, before: float, known: bool) -> str:
    text = (
        f"About {found.accuracy:.0%} of the last {images} answers are right, as far as this can be "
        f"estimated without labels ({found.low:.0%} to {found.high:.0%}; on validation pictures it "
        f"was {before:.0%})."
    )
    return text if known else f"{text} Without --reference, this is a wide guess."


def drift_metrics(report: Mapping[str, Any]) -> list[Metric]:
    """The report as gauges."""
    about = ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS))
    level = LEVELS.index(report["level"])
    differences = [
        ("", {"measure": each["measure"]}, each["difference"])
        for each in report.get("measures", ())
    ]
    forecast = report.get("forecast")
    estimated = [] if forecast is None else [("", {}, forecast["accuracy"])]
    return [
        Metric(
            "unseen_forecast_accuracy",
            "gauge",
            "Accuracy on the last images, estimated without labels.",
            estimated,
        ),
        gauge("unseen_drift_level", f"The last images beside validation images: {about}.", level),
        Metric(
            "unseen_drift_difference",
            "gauge",
            "By measure, from 0 (as in validation) to 1 (nothing alike).",
            differences,
        ),
    ]
