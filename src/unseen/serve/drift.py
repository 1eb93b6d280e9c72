"""Watches whether images are still like those that the model was validated on."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from unseen.forecast.estimate import Combined, Reference, combine, gaps
from unseen.forecast.profile import MEANINGS, STATISTICS, Observed, Profile, disagreement
from unseen.serve.metrics import Metric, gauge
from unseen.serve.predictor import Predictor

ALL_DOMAINS = "all training domains"
FEWEST_IMAGES = 20
"""Validation images of a domain, for images to be compared with it alone."""


def raw_scores(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """The scores before they were divided by the temperature, but for a constant."""
    return temperature * np.log(np.maximum(probabilities, 1e-30))


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Observations(NamedTuple):
    """Some images: rows of the first arrays, and perhaps fewer of the last."""

    scores: np.ndarray
    disagreement: np.ndarray | None
    statistics: np.ndarray
    temperature: float

    def measures(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and values, without those that are not known."""
        yield "confidence", softmax(self.scores / self.temperature).max(axis=1)
        if self.disagreement is not None:
            yield "disagreement", self.disagreement
        for name, values in zip(STATISTICS, self.statistics.T, strict=True):
            yield name, values[np.isfinite(values)]

    def predicted_shares(self) -> np.ndarray:
        predicted = self.scores.argmax(axis=1)
        return np.bincount(predicted, minlength=self.scores.shape[1]) / max(1, len(predicted))

    def observed(self) -> Observed:
        """As forecasts take them."""
        return Observed(self.scores, self.disagreement, self.statistics)


def references(profile: Profile, temperature: float) -> dict[str, Observations]:
    """Validation images of all training domains, and of each that has enough of them."""

    def chosen(rows: np.ndarray, described: np.ndarray) -> Observations:
        apart = None if profile.disagreement is None else profile.disagreement[rows]
        statistics = profile.statistics[described]
        return Observations(profile.scores[rows], apart, statistics, temperature)

    found = {ALL_DOMAINS: chosen(np.arange(len(profile)), np.arange(len(profile.described)))}
    for number, name in enumerate(profile.domains):
        rows = np.flatnonzero(profile.domain == number)
        if len(rows) >= FEWEST_IMAGES:
            described = np.flatnonzero(profile.described_domain == number)
            found[name] = chosen(rows, described)
    return found


class Window:
    """The last images that were answered; never more of them than its length."""

    def __init__(self, length: int, n_classes: int, temperature: float) -> None:
        self.length, self._temperature = length, temperature
        self.total = 0
        self._scores = np.zeros((length, n_classes), dtype=np.float32)
        self._disagreement = np.full(length, np.nan, dtype=np.float32)
        self._statistics = np.full((length, len(STATISTICS)), np.nan, dtype=np.float32)

    def add(
        self, probabilities: np.ndarray, opinions: np.ndarray | None, statistics: np.ndarray
    ) -> None:
        place = self.total % self.length
        self._scores[place] = raw_scores(probabilities, self._temperature)
        if opinions is not None:
            raw = softmax(raw_scores(opinions, self._temperature))
            self._disagreement[place] = disagreement(raw)
        self._statistics[place] = statistics
        self.total += 1

    def copy(self) -> Observations:
        filled = min(self.total, self.length)
        apart = self._disagreement[:filled].copy()
        return Observations(
            self._scores[:filled].copy(),
            None if np.isnan(apart).any() else apart,
            self._statistics[:filled].copy(),
            self._temperature,
        )


Level = Literal["too few images", "as in training", "somewhat different", "very different"]
LEVELS: tuple[Level, ...] = (
    "too few images",
    "as in training",
    "somewhat different",
    "very different",
)
FEWEST = 50
"""Images that are needed for a level."""
SOMEWHAT, VERY = 0.2, 0.4
CHANCE = 0.01
"""Of any measure looking different where nothing changed."""
PREDICTED = "predicted classes"
OF_THE_MODEL = {
    "confidence": "probability of the predicted class",
    "disagreement": "how far the training domains' opinions lie apart, before calibration",
    PREDICTED: "share of images whose class would have to change to get the shares of validation",
}


class Difference(NamedTuple):
    """One measure: means then and now, how far apart, and how far by chance."""

    measure: str
    about: str
    reference: float | None
    now: float | None
    difference: float
    by_chance: float
    level: Level


class Comparison(NamedTuple):
    """All measures against one set of validation images."""

    compared_with: str
    level: Level
    differences: tuple[Difference, ...]

    @property
    def size(self) -> float:
        return float(np.mean([each.difference for each in self.differences]))


def compare(now: Observations, references: Mapping[str, Observations]) -> Comparison:
    """With the validation images that are most like those of now: images may all come from one of
    the training domains, and nothing is wrong with that."""
    found = (_compare(now, reference, name) for name, reference in references.items())
    return min(found, key=lambda comparison: comparison.size)


def _compare(now: Observations, reference: Observations, name: str) -> Comparison:
    then = dict(reference.measures())
    pairs = [
        (measure, then[measure], values)
        for measure, values in now.measures()
        if measure in then and len(then[measure]) and len(values)
    ]
    chance = CHANCE / (len(pairs) + 1)
    differences = tuple(_of_values(*pair, chance) for pair in pairs)
    predicted = _of_shares(reference, now, chance)
    everything = (*differences[:2], predicted, *differences[2:])
    return Comparison(name, _overall(everything, len(now.scores)), everything)


def _of_values(measure: str, then: np.ndarray, now: np.ndarray, chance: float) -> Difference:
    size = distance(then, now)
    by_chance = math.sqrt(-math.log(chance / 2) / 2 * (1 / len(then) + 1 / len(now)))
    about = OF_THE_MODEL.get(measure) or MEANINGS[measure]
    level = _level(size, by_chance, len(now))
    return Difference(measure, about, float(then.mean()), float(now.mean()), size, by_chance, level)


def distance(then: np.ndarray, now: np.ndarray) -> float:
    """Largest difference between the shares of values up to any number (Kolmogorov-Smirnov)."""
    then, now = np.sort(then), np.sort(now)
    places = np.concatenate([then, now])
    shares = (np.searchsorted(each, places, "right") / len(each) for each in (then, now))
    return float(np.abs(next(shares) - next(shares)).max())


def _of_shares(then: Observations, now: Observations, chance: float) -> Difference:
    before, after = then.predicted_shares(), now.predicted_shares()
    size = float(np.abs(before - after).sum() / 2)
    several = 1 / len(then.scores) + 1 / max(1, len(now.scores))
    spread = np.sqrt(2 / math.pi * before * (1 - before) * several).sum() / 2
    by_chance = float(spread) + math.sqrt(-math.log(chance) / 2 * several)
    level = _level(size, by_chance, len(now.scores))
    return Difference(PREDICTED, OF_THE_MODEL[PREDICTED], None, None, size, by_chance, level)


def _level(size: float, by_chance: float, images: int) -> Level:
    if images < FEWEST:
        return "too few images"
    if size < SOMEWHAT or size <= by_chance:
        return "as in training"
    return "somewhat different" if size < VERY else "very different"


def _overall(differences: tuple[Difference, ...], images: int) -> Level:
    """The worst one, but a single statistic of the pictures is at most somewhat different: another
    camera or file format is not another world."""
    if images < FEWEST:
        return "too few images"
    very = [each for each in differences if each.level == "very different"]
    if len(very) > 1 or any(each.measure in OF_THE_MODEL for each in very):
        return "very different"
    somewhat = any(each.level == "somewhat different" for each in differences)
    return "somewhat different" if very or somewhat else "as in training"


LARGEST = 10.0
"""Spreads from the middle that count: beyond, a statistic is just very far away."""


class Strangeness(NamedTuple):
    """`share` of the validation images are less strange."""

    share: float
    closest_domain: str
    most_unusual: str
    """The statistic that lies farthest from what the closest domain has."""


class StrangenessScale:
    """Distance to the closest training domain: each statistic from the domain's median, in spreads
    of the domain (a quartile range over 1.349), and the root of the mean of their squares."""

    def __init__(self, profile: Profile) -> None:
        values, home = profile.statistics, profile.described_domain
        self._known = np.flatnonzero(np.isfinite(values).all(axis=0)) if len(values) else []
        self._domains = [
            name for number, name in enumerate(profile.domains) if (home == number).any()
        ]
        values = values[:, self._known].astype(np.float64)
        groups = [values[home == profile.domains.index(name)] for name in self._domains]
        self._middles = np.array([np.median(group, axis=0) for group in groups])
        quartiles = [np.percentile(group, (25, 75), axis=0) for group in groups]
        spreads = np.array([(high - low) / 1.349 for low, high in quartiles])
        # where a domain hardly varies, a hundredth of what all images span, or of the value
        floor = np.maximum(0.01 * np.ptp(values, axis=0), 0.01 * np.abs(self._middles)) + 1e-6
        self._spreads = np.maximum(spreads, floor)
        self._validation = np.sort([self._nearest(row)[0] for row in values])

    @classmethod
    def of(cls, profile: Profile | None) -> "StrangenessScale | None":
        """None where there is nothing to compare a picture with."""
        if profile is None or not np.isfinite(profile.statistics).all(axis=0).any():
            return None
        return cls(profile) if len(profile.statistics) else None

    def __call__(self, statistics: np.ndarray) -> Strangeness:
        far, domain, most = self._nearest(statistics[self._known].astype(np.float64))
        share = np.searchsorted(self._validation, far, "left") / len(self._validation)
        return Strangeness(float(share), self._domains[domain], STATISTICS[self._known[most]])

    def _nearest(self, values: np.ndarray) -> tuple[float, int, int]:
        """Distance, number of the domain, and position of the farthest statistic."""
        apart = np.minimum(np.abs(values - self._middles) / self._spreads, LARGEST)
        far = np.sqrt((apart**2).mean(axis=1))
        domain = int(far.argmin())
        return float(far[domain]), domain, int(apart[domain].argmax())


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
