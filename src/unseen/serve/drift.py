"""Watches whether images are still like those that the model was validated on."""

import math
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from prometheus_client.core import GaugeMetricFamily
from scipy.special import softmax

from unseen.forecast.estimate import Reference, combine, gaps, percent
from unseen.forecast.profile import MEANINGS, STATISTICS, ModelOutputs, Profile
from unseen.serve.predictor import Predictions, Predictor

WINDOW = 500
ALL_DOMAINS = "all training domains"
FEWEST_OF_A_DOMAIN = 20
"""Validation images of a domain, for images to be compared with it alone."""
LEVELS = ("too few images", "as in training", "somewhat different", "very different")
TOO_FEW, AS_IN_TRAINING, SOMEWHAT_DIFFERENT, VERY_DIFFERENT = LEVELS
FEWEST = 50
"""Images that are needed for a level."""
SOMEWHAT, VERY = 0.2, 0.4
CHANCE = 0.01
"""The probability that any measure looks different where nothing changed."""
PREDICTED = "predicted classes"
OF_THE_MODEL = {
    "confidence": "probability of the predicted class",
    "disagreement": "how far the training domains' opinions lie apart, before calibration",
    PREDICTED: "share of images whose class would have to change to get the shares of validation",
}
_RESIZED = ("width", "height")
LARGEST = 10.0
"""Spreads from the middle that count: beyond, a statistic is just very far away."""
_WITHOUT_PROFILE = (
    "this model carries no profile of its validation images, so there is nothing to compare with; "
    "export or save it again from its run folder"
)
_OFF = "the drift watch is off: the service was started with --window 0"
_WITHOUT_REFERENCES = "Without --reference, this is a wide guess."


class Measure(NamedTuple):
    """One measure of the last images beside validation images."""

    measure: str
    about: str
    difference: float
    """0: as in validation, 1: nothing alike."""
    by_chance: float
    """Differences up to this one mean nothing."""
    level: str
    reference: float | None = None
    """The mean of validation images."""
    now: float | None = None


def validation_sets(profile: Profile) -> dict[str, ModelOutputs]:
    """Validation images of all training domains, and of each that has enough of them."""
    homes = {ALL_DOMAINS: range(len(profile.domains))}
    for number, name in enumerate(profile.domains):
        if np.count_nonzero(profile.domain == number) >= FEWEST_OF_A_DOMAIN:
            homes[name] = range(number, number + 1)
    found: dict[str, ModelOutputs] = {}
    for name, home in homes.items():
        rows, described = np.isin(profile.domain, home), np.isin(profile.described_domain, home)
        apart = None if profile.disagreement is None else profile.disagreement[rows]
        found[name] = ModelOutputs(profile.scores[rows], apart, profile.statistics[described])
    return found


def _values(outputs: ModelOutputs, temperature: float) -> dict[str, np.ndarray]:
    """The values of every measure that is known."""
    found = {"confidence": softmax(outputs.scores / temperature, axis=1).max(axis=1)}
    if outputs.disagreement is not None:
        found["disagreement"] = outputs.disagreement
    if outputs.statistics is not None:
        for name, values in zip(STATISTICS, outputs.statistics.T, strict=True):
            found[name] = values[np.isfinite(values)]
    return {name: values for name, values in found.items() if len(values)}


def compare(
    now: ModelOutputs, references: Mapping[str, ModelOutputs], temperature: float
) -> tuple[str, list[Measure]]:
    """Compare with the validation images that are most like those of now, and name them: images may
    all come from one of the training domains, and nothing is wrong with that."""
    found = {name: _measures(now, each, temperature) for name, each in references.items()}
    return min(found.items(), key=lambda each: np.mean([one.difference for one in each[1]]))


def _measures(now: ModelOutputs, reference: ModelOutputs, temperature: float) -> list[Measure]:
    then, values = _values(reference, temperature), _values(now, temperature)
    common = [name for name in values if name in then]
    chance, found = CHANCE / (len(common) + 1), list[Measure]()

    def add(name: str, size: float, by_chance: float, images: int, *means: float) -> None:
        level = VERY_DIFFERENT if size >= VERY else SOMEWHAT_DIFFERENT
        if size < SOMEWHAT or size <= by_chance:
            level = AS_IN_TRAINING
        level = TOO_FEW if images < FEWEST else level
        found.append(Measure(name, (OF_THE_MODEL | MEANINGS)[name], size, by_chance, level, *means))

    for name in common:
        old, new = then[name], values[name]
        by_chance = math.sqrt(-math.log(chance / 2) / 2 * (1 / len(old) + 1 / len(new)))
        add(name, distance(old, new), by_chance, len(new), float(old.mean()), float(new.mean()))
    before, after, images = reference.shares, now.shares, len(now.scores)
    several = 1 / len(reference.scores) + 1 / images
    spread = float(np.sqrt(2 / math.pi * before * (1 - before) * several).sum() / 2)
    by_chance = spread + math.sqrt(-math.log(chance) / 2 * several)
    add(PREDICTED, float(np.abs(before - after).sum() / 2), by_chance, images)
    return sorted(found, key=lambda each: each.measure not in OF_THE_MODEL)


def distance(then: np.ndarray, now: np.ndarray) -> float:
    """Largest difference between the shares of values up to any number (Kolmogorov-Smirnov)."""
    places = np.concatenate([then, now])
    first, second = (
        np.searchsorted(np.sort(each), places, "right") / len(each) for each in (then, now)
    )
    return float(np.abs(first - second).max())


def overall(measures: Sequence[Measure], images: int) -> str:
    """The level of the worst measure, but a single statistic of the images is at most somewhat
    different: another camera or file format is not another world."""
    if images < FEWEST:
        return TOO_FEW
    very = [each for each in measures if each.level == VERY_DIFFERENT]
    if len(very) > 1 or any(each.measure in OF_THE_MODEL for each in very):
        return VERY_DIFFERENT
    somewhat = any(each.level == SOMEWHAT_DIFFERENT for each in measures)
    return SOMEWHAT_DIFFERENT if very or somewhat else AS_IN_TRAINING


class OutlierScale:
    """Distance to the closest training domain: each statistic from the domain's median, in spreads
    of the domain (a quartile range over 1.349), and the root of the mean of their squares. Width
    and height do not count: every image is resized for the model."""

    def __init__(self, profile: Profile, known: np.ndarray) -> None:
        """`known` are the columns of statistics that count."""
        home = profile.described_domain
        self._known = np.flatnonzero(known)
        values = profile.statistics[:, self._known].astype(np.float64)
        self._domains = [profile.domains[number] for number in np.unique(home)]
        groups = [values[home == number] for number in np.unique(home)]
        quarters = np.array([np.percentile(group, (25, 50, 75), axis=0) for group in groups])
        low, self._middles, high = quarters.transpose(1, 0, 2)
        # where a domain hardly varies, a hundredth of what all images span, or of the value
        floor = np.maximum(0.01 * np.ptp(values, axis=0), 0.01 * np.abs(self._middles)) + 1e-6
        self._spreads = np.maximum((high - low) / 1.349, floor)
        self._validation = np.sort([self._nearest(row)[0] for row in values])

    @classmethod
    def of(cls, profile: Profile | None) -> "OutlierScale | None":
        """None where there is nothing to compare an image with."""
        if profile is None or not len(profile.statistics):
            return None
        known = np.isfinite(profile.statistics).all(axis=0) & ~np.isin(STATISTICS, _RESIZED)
        return cls(profile, known) if known.any() else None

    def __call__(self, statistics: np.ndarray) -> tuple[float, str, str]:
        """The share of the validation images that are closer, the closest domain, and the statistic
        that lies farthest from what this domain has."""
        far, domain, most = self._nearest(statistics[self._known].astype(np.float64))
        share = np.searchsorted(self._validation, far, "left") / len(self._validation)
        return float(share), self._domains[domain], STATISTICS[self._known[most]]

    def _nearest(self, values: np.ndarray) -> tuple[float, int, int]:
        """Distance, number of the domain, and position of the farthest statistic."""
        apart = np.minimum(np.abs(values - self._middles) / self._spreads, LARGEST)
        far = np.sqrt((apart**2).mean(axis=1))
        domain = int(far.argmin())
        return float(far[domain]), domain, int(apart[domain].argmax())


class DriftWatch:
    """Keeps numbers of the last images, never the images."""

    def __init__(
        self, predictor: Predictor, window: int = WINDOW, references: Sequence[Reference] = ()
    ) -> None:
        """`references` are runs that show how far forecasts are off. With a window of 0 nothing is
        watched, and images are not measured."""
        self._predictor, self._runs = predictor, references
        self._profile = predictor.profile if window else None
        self._note = _WITHOUT_PROFILE if window else _OFF
        self._validation = {} if self._profile is None else validation_sets(self._profile)
        self.measures = bool(self._validation)
        """Whether there is anything to compare an image's statistics with."""
        self.outlier_scale = OutlierScale.of(self._profile)
        self._lock = threading.Lock()
        self._window: deque[tuple[np.ndarray, np.ndarray | None, np.ndarray]] = deque(maxlen=window)
        self._every = max(1, window // 10)
        self._total = 0
        self._forecast: tuple[int, dict[str, Any]] | None = None

    def add(
        self, probabilities: np.ndarray, opinions: np.ndarray | None, statistics: np.ndarray
    ) -> None:
        """Remember one image; the oldest one is forgotten where the window is full."""
        with self._lock:
            self._window.append((probabilities, opinions, statistics))
            self._total += 1

    def report(self) -> dict[str, Any]:
        """Compare the last images with validation images; takes a while, in any thread."""
        with self._lock:
            rows, total = list(self._window), self._total
        found: dict[str, Any] = {"level": TOO_FEW, "images": len(rows), "total": total}
        if self._profile is None:
            return found | {"note": self._note}
        if not rows:
            return found
        probabilities, opinions, statistics = zip(*rows, strict=True)
        each = None if opinions[0] is None else np.stack(opinions)
        raw = Predictions(np.stack(probabilities), each).at(1 / self._predictor.temperature)
        now = raw.outputs()._replace(statistics=np.stack(statistics))
        name, measures = compare(now, self._validation, self._predictor.temperature)
        found["level"], found["compared_with"] = overall(measures, len(rows)), name
        found["measures"] = [
            {key: value for key, value in each._asdict().items() if value is not None}
            for each in measures
        ]
        shares = (each.shares.tolist() for each in (self._validation[name], now))
        found["classes"] = [
            {"class": each, "reference": before, "now": after}
            for each, before, after in zip(self._predictor.classes, *shares, strict=True)
        ]
        if len(rows) >= FEWEST:
            # made again after every tenth of the window: it takes longer than all the rest
            if self._forecast is None or total - self._forecast[0] >= self._every:
                self._forecast = total, self._make_forecast(self._profile, now)
            found["forecast"] = self._forecast[1]
        return found

    def _make_forecast(self, profile: Profile, outputs: ModelOutputs) -> dict[str, Any]:
        images, known = len(outputs.scores), profile.accuracy
        found = combine(known, gaps(profile, outputs), self._runs, images)
        text = (
            f"Best guess, without labels: {percent(found.accuracy)} of the latest {images} "
            f"predictions are right, {found.interval} ({percent(known)} on validation images)."
        )
        about = {name: getattr(found, name) for name in ("accuracy", "low", "high")}
        about |= {"source_accuracy": known, "references": len(self._runs)}
        return about | {"text": text if self._runs else f"{text} {_WITHOUT_REFERENCES}"}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The report as gauges, as a registry of Prometheus asks for them."""
        report = self.report()
        about = ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS))
        about = f"The last images beside validation images: {about}."
        yield GaugeMetricFamily("unseen_drift_level", about, LEVELS.index(report["level"]))
        about = "The difference by measure, from 0 (as in validation) to 1 (nothing alike)."
        differences = GaugeMetricFamily("unseen_drift_difference", about, labels=["measure"])
        for each in report.get("measures", ()):
            differences.add_metric([each["measure"]], each["difference"])
        yield differences
        if "forecast" in report:
            about = "Accuracy on the last images, estimated without labels."
            accuracy = report["forecast"]["accuracy"]
            yield GaugeMetricFamily("unseen_forecast_accuracy", about, accuracy)
