"""Estimates of accuracy without labels, and one forecast from all of them by how well each did
where the truth is known; and how new images differ from validation images.

A reference is a run that left out a domain of which the labels are known: what each estimate said
there can be compared with the truth. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, stdtrit

from unseen.forecast.profile import STATISTICS, ModelOutputs, Profile
from unseen.reports.text import MISSING
from unseen.results.statistics import COLDEST, evenly, fit_temperature, nuclear_norm

NEIGHBOURS = 5


def thresholded_confidence(source: np.ndarray, correct: np.ndarray, target: np.ndarray) -> float:
    """ATC (Garg et al. 2022): the share of target images above the threshold that as many source
    images pass as are predicted correctly. `source` and `target` are certainties, any measure."""
    passed = int(np.count_nonzero(correct))
    if passed == 0:
        return 0.0
    threshold = np.sort(source)[len(source) - passed]
    return float((target >= threshold).mean())


def confidence_difference(source: np.ndarray, correct: np.ndarray, target: np.ndarray) -> float:
    """DoC (Guillory et al. 2021): accuracy falls as much as the mean confidence does."""
    return float(np.mean(correct) + target.mean() - source.mean())


def class_separation(features: np.ndarray, labels: np.ndarray) -> float:
    """The share of the features' variance that lies between classes, 0 to 1 (a bounded form of the
    dispersion score, Xie et al. 2023). Labels may be the model's own predictions."""
    total = ((features - features.mean(axis=0)) ** 2).sum()
    within = sum(
        ((features[labels == label] - features[labels == label].mean(axis=0)) ** 2).sum()
        for label in np.unique(labels)
    )
    return float(1 - within / total) if total > 0 else 0.0


def neighbour_agreement(
    features: np.ndarray,
    predicted: np.ndarray,
    known: np.ndarray,
    labels: np.ndarray,
    skip_itself: bool = False,
) -> float:
    """Return how often the predicted class is the most frequent label among the five images with
    the most similar features (by angle) whose labels are known."""
    lengths = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (features, known))
    own, others = (np.maximum(length, 1e-12) for length in lengths)
    similar = (features / own) @ (known / others).T
    if skip_itself:
        np.fill_diagonal(similar, -np.inf)
    nearest = labels[np.argsort(-similar, axis=1, kind="stable")[:, :NEIGHBOURS]]
    votes = (nearest[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    return float((votes.argmax(axis=1) == predicted).mean())


NAMES = {
    "atc": "average thresholded confidence (ATC)",
    "doc": "difference of confidences (DoC)",
    "nuclear norm": "nuclear norm",
    "class separation": "class separation of features",
    "neighbours": "agreement with nearest validation images",
}
"""The names of estimates where people read them."""
DIRECT = ("atc", "doc")
"""The estimates that are accuracies by themselves; others need references to become one."""
WITHOUT_REFERENCES = "atc"
"""The one that counts where there are no references, and only there: the closest by itself."""


def gaps(profile: Profile, outputs: ModelOutputs) -> dict[str, float]:
    """Returns the gap between source and target by each estimate: in accuracy for the direct ones,
    in the measure itself for the others. Positive is worse."""
    temperature = fit_temperature([profile.scores], [profile.label]) or COLDEST
    scores = profile.scores.astype(np.float64), outputs.scores.astype(np.float64)
    source, target = (log_softmax(each / temperature, axis=1) for each in scores)
    correct = profile.scores.argmax(axis=1) == profile.label
    probs, new = np.exp(source), np.exp(target)
    certain, new_certain = (probs * source).sum(axis=1), (new * target).sum(axis=1)
    atc = thresholded_confidence(certain, correct, new_certain)
    doc = confidence_difference(probs.max(axis=1), correct, new.max(axis=1))
    found = {"atc": float(correct.mean() - atc), "doc": float(correct.mean() - doc)}
    found["nuclear norm"] = nuclear_norm(probs) - nuclear_norm(new)
    known, features = profile.features, outputs.features
    if known is not None and features is not None:
        labels = profile.label[profile.described]
        predicted = profile.scores[profile.described].argmax(axis=1)
        called = outputs.scores.argmax(axis=1)
        separation = class_separation(known, predicted) - class_separation(features, called)
        agreed = neighbour_agreement(known, predicted, known, labels, skip_itself=True)
        found["class separation"] = separation
        found["neighbours"] = agreed - neighbour_agreement(features, called, known, labels)
    return found


LEVEL = 0.8
"""The share of intervals that should hold the truth."""
USUAL_ERROR = 0.09
"""The error of a forecast as long as nothing else is known; it counts as much as one reference."""
_STEP, _SLOPE, _NOISE = 0.10, 0.5, 0.03
"""Standard deviations: how far from 0 and 1 step and slope usually lie, and how far from the curve
references lie."""
_RAMP = 0.05
"""The gap over which the step is climbed."""
_FLOOR = 0.02
"""No estimate is trusted to be closer than this."""


@dataclass(frozen=True)
class Reference:
    """A run and a domain that it left out; `accuracy` is the truth."""

    run: str
    domain: str
    source_accuracy: float
    accuracy: float
    gaps: Mapping[str, float]

    @property
    def drop(self) -> float:
        return self.source_accuracy - self.accuracy


@dataclass(frozen=True)
class AccuracyEstimate:
    """One way to estimate the accuracy, before and after it was calibrated on references."""

    name: str
    plain: float | None
    """The estimate as it is; None for a measure that is no accuracy by itself."""
    accuracy: float | None
    """The calibrated one; None where it takes references and there are none."""
    weight: float
    error: float | None
    """Root mean square over references, each predicted from those of other domains."""


@dataclass(frozen=True)
class Combined:
    """The accuracy by all estimates together, and its interval."""

    accuracy: float
    low: float
    high: float
    estimates: tuple[AccuracyEstimate, ...]
    error: float
    """The usual error, as the references show it."""

    @property
    def interval(self) -> str:
        """Such as `80 % interval 62 to 74`."""
        return f"{percent(LEVEL)} interval {100 * self.low:.0f} to {100 * self.high:.0f}"


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def fit_curve(references: Sequence[Reference], name: str) -> np.ndarray:
    """The step and the slope of drop = step · tanh(gap / 0.05) + slope · gap, the step only where
    the gap is positive.

    Images of another domain are often answered wrong with more confidence than they deserve, which
    no gap shows; images that are easier than validation show it in full. Every domain counts the
    same; with few references the curve is hardly away from drop = gap. (The mean of a Bayesian
    linear regression around that line.)
    """
    columns = _columns([each.gaps[name] for each in references])
    drops = np.array([each.drop for each in references])
    weights = _weights(references)
    prior = _NOISE**2 / np.array([_STEP, _SLOPE]) ** 2
    precision = columns.T @ (weights[:, None] * columns) + np.diag(prior)
    return np.linalg.solve(precision, columns.T @ (weights * drops) + prior * np.array([0.0, 1.0]))


def drop_at(curve: np.ndarray, gap: float) -> float:
    """Returns the drop in accuracy that a curve of `fit_curve` expects at a gap."""
    return float(_columns([gap])[0] @ curve)


def _columns(gaps: Sequence[float]) -> np.ndarray:
    values = np.array(gaps)
    return np.stack([np.tanh(np.clip(values, 0, None) / _RAMP), values], axis=1)


def combine(
    source_accuracy: float,
    gaps: Mapping[str, float],
    references: Sequence[Reference],
    images: int,
) -> Combined:
    """Combine estimates, weighted by the inverse square of their usual error on references; the
    interval follows from the errors of the combination there: Student's t with as many degrees as
    there are domains, and two more; few images add their own uncertainty."""
    names, domains = [WITHOUT_REFERENCES], len({each.domain for each in references})
    if references:
        common = set(gaps).intersection(*(each.gaps for each in references))
        names = [name for name in gaps if name in common and name != WITHOUT_REFERENCES]
    missed = {name: _errors(references, name) for name in names}
    errors = {name: _root_mean_square(missed[name], references) for name in names if references}
    trust = {name: 1 / (errors.get(name, 0.0) ** 2 + _FLOOR**2) for name in names}
    weights = {name: value / sum(trust.values()) for name, value in trust.items()}
    drops = {name: drop_at(fit_curve(references, name), gaps[name]) for name in names}

    def share(drop: float) -> float:
        return float(np.clip(source_accuracy - drop, 0.0, 1.0))

    accuracy = share(sum(weights[name] * drops[name] for name in names))
    together = np.sum([weights[name] * missed[name] for name in names], axis=0)
    known = _root_mean_square(together, references) ** 2 * domains if domains else 0.0
    variance = (USUAL_ERROR**2 + known) / (1 + domains)
    sampling = max(accuracy * (1 - accuracy), 0.01) / images
    half_width = float(stdtrit(domains + 2, (1 + LEVEL) / 2)) * float(np.sqrt(variance + sampling))
    estimates = tuple(
        AccuracyEstimate(
            name,
            share(gap) if name in DIRECT else None,
            share(drops[name]) if name in drops else None,
            weights.get(name, 0.0),
            errors.get(name),
        )
        for name, gap in gaps.items()
    )
    low, high = (float(np.clip(accuracy + side * half_width, 0.0, 1.0)) for side in (-1, 1))
    return Combined(accuracy, low, high, estimates, float(np.sqrt(variance)))


def _errors(references: Sequence[Reference], name: str) -> np.ndarray:
    """Returns for each reference the drop that those of other domains predict, minus the truth."""
    found: list[float] = []
    for each in references:
        others = [other for other in references if other.domain != each.domain]
        found.append(drop_at(fit_curve(others, name), each.gaps[name]) - each.drop)
    return np.array(found)


def _weights(references: Sequence[Reference]) -> np.ndarray:
    """Runs that left out the same domain share one vote."""
    domains = [each.domain for each in references]
    return np.array([1 / domains.count(domain) for domain in domains])


def _root_mean_square(errors: np.ndarray, references: Sequence[Reference]) -> float:
    return float(np.sqrt(np.average(errors**2, weights=_weights(references))))


LARGEST = 10.0
"""Standardised differences are cut here: two constants that differ would be infinitely apart."""
_FEWEST = 10
"""Images on either side below which no classifier is fitted."""
_MOST = 600
"""Images on either side that a classifier looks at."""


@dataclass(frozen=True)
class StatisticDifference:
    """One statistic of the new images and of a training domain."""

    statistic: str
    new: float
    domain: float
    size: float
    """Standardised (Cohen's d): 0.2 is small, 0.8 is large."""


@dataclass(frozen=True)
class DomainDifference:
    """The differences between the new images and one training domain."""

    domain: str
    statistics: tuple[StatisticDifference, ...]
    """The largest first."""
    auc: float | None
    """AUC of a cross-validated classifier that tells new images from this domain's: 0.5 is
    chance."""


@dataclass(frozen=True)
class Differences:
    """The differences between the new images and validation images."""

    domains: tuple[DomainDifference, ...]
    """The closest first: the one that new images are hardest to tell from."""
    auc: float | None
    """AUC as above, against images of all training domains together."""
    measured_by: str
    """The arrays that AUC and distance are computed from: features, or image statistics."""
    distance: np.ndarray
    """`[images]`: to the nearest validation images; 1 is usual among these."""

    @property
    def closest(self) -> DomainDifference:
        return self.domains[0]

    def outliers(self, most: int) -> list[tuple[int, float]]:
        """Positions and distances of the images farthest from validation images, these first."""
        rows = np.argsort(-self.distance, kind="stable")[:most]
        return list(zip(rows.tolist(), self.distance[rows].tolist(), strict=True))


def find_differences(profile: Profile, outputs: ModelOutputs) -> Differences | None:
    """Compare by features where both sides have them, else by image statistics; None without
    either. Both are standardised by the validation images; columns not known everywhere are left
    out."""
    by_features = profile.features is not None and outputs.features is not None
    source = profile.features if by_features else profile.statistics
    target = outputs.features if by_features else outputs.statistics
    if source is None or target is None or not len(source) or not len(target):
        return None
    known = np.isfinite(source).all(axis=0) & np.isfinite(target).all(axis=0)
    source, target = source[:, known].astype(np.float64), target[:, known].astype(np.float64)
    centre, spread = source.mean(axis=0), source.std(axis=0)
    spread = np.where(spread > 1e-6 * np.abs(centre).max(initial=1.0), spread, 1.0)
    source = np.clip((source - centre) / spread, -LARGEST, LARGEST)
    target = np.clip((target - centre) / spread, -LARGEST, LARGEST)
    found: list[tuple[float, float, DomainDifference]] = []
    for number in np.unique(profile.described_domain):
        own = profile.described_domain == number
        auc = tell_apart(source[own], target)
        statistics = _statistics(profile.statistics[own], outputs.statistics)
        near, order = float(_nearest(target, source[own]).mean()), 1.0 if auc is None else auc
        difference = DomainDifference(profile.domains[number], statistics, auc)
        found.append((order, near, difference))
    found.sort(key=lambda each: each[:2])
    domains = tuple(domain for _, _, domain in found)
    usual = float(np.median(_nearest(source, source, skip_itself=True))) or 1.0
    by = "features" if by_features else "image statistics"
    return Differences(domains, tell_apart(source, target), by, _nearest(target, source) / usual)


def standardised_difference(new: np.ndarray, old: np.ndarray) -> float:
    """Cohen's d with the mean of both variances, cut at `LARGEST`."""
    apart = float(new.mean() - old.mean())
    spread = float(np.sqrt((new.var() + old.var()) / 2))
    if abs(apart) <= 1e-9:
        return 0.0
    return float(np.clip(apart / max(spread, 1e-12), -LARGEST, LARGEST))


def tell_apart(source: np.ndarray, target: np.ndarray) -> float | None:
    """Return the AUC of a logistic regression in five folds; None with too few images."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    source, target = evenly(source, _MOST), evenly(target, _MOST)
    if min(len(source), len(target)) < _FEWEST:
        return None
    values = np.concatenate([source, target])
    is_new = np.repeat([0, 1], [len(source), len(target)])
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = cross_val_predict(model, values, is_new, cv=folds, method="decision_function")
    return float(roc_auc_score(is_new, found))


def _statistics(source: np.ndarray, target: np.ndarray | None) -> tuple[StatisticDifference, ...]:
    if target is None or not len(source):
        return ()
    found: list[StatisticDifference] = []
    for place, name in enumerate(STATISTICS):
        old, new = (each[:, place][np.isfinite(each[:, place])] for each in (source, target))
        if len(old) and len(new):
            size = standardised_difference(new.astype(np.float64), old.astype(np.float64))
            found.append(StatisticDifference(name, float(new.mean()), float(old.mean()), size))
    return tuple(sorted(found, key=lambda each: -abs(each.size)))


def _nearest(points: np.ndarray, others: np.ndarray, skip_itself: bool = False) -> np.ndarray:
    """Return the mean distance of each point to its nearest others."""
    from scipy.spatial.distance import cdist

    distances = cdist(points, others)
    if skip_itself:
        np.fill_diagonal(distances, np.inf)
    number = max(1, min(NEIGHBOURS, len(others) - skip_itself))
    nearest = np.sort(distances, axis=1)[:, :number]
    return np.where(np.isfinite(nearest), nearest, 0.0).mean(axis=1)
