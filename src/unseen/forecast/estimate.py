"""Estimates of accuracy without labels, and one forecast from all of them by how well each did
where the truth is known.

A reference is a run that left out a domain of which the labels are known: what each estimate said
there can be compared with the truth. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, stdtrit

from unseen.forecast.profile import ModelOutputs, Profile
from unseen.reports.formats import MISSING
from unseen.results.statistics import COLDEST, fit_temperature, nuclear_norm

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
    similar = _unit(features) @ _unit(known).T
    if skip_itself:
        np.fill_diagonal(similar, -np.inf)
    nearest = labels[np.argsort(-similar, axis=1, kind="stable")[:, :NEIGHBOURS]]
    votes = (nearest[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    return float((votes.argmax(axis=1) == predicted).mean())


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


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
    source, target = (
        log_softmax(np.asarray(scores, dtype=np.float64) / temperature, axis=1)
        for scores in (profile.scores, outputs.scores)
    )
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
    """A run and a domain that it left out."""

    run: str
    domain: str
    source_accuracy: float
    accuracy: float
    """The truth."""
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
    columns = _columns(np.array([each.gaps[name] for each in references]))
    drops = np.array([each.drop for each in references])
    weights = _weights(references)
    prior = _NOISE**2 / np.array([_STEP, _SLOPE]) ** 2
    precision = columns.T @ (weights[:, None] * columns) + np.diag(prior)
    return np.linalg.solve(precision, columns.T @ (weights * drops) + prior * np.array([0.0, 1.0]))


def drop_at(curve: np.ndarray, gap: float) -> float:
    """Returns the drop in accuracy that a curve of `fit_curve` expects at a gap."""
    return float(_columns(np.array([gap]))[0] @ curve)


def _columns(gaps: np.ndarray) -> np.ndarray:
    return np.stack([np.tanh(np.clip(gaps, 0, None) / _RAMP), gaps], axis=1)


def combine(
    source_accuracy: float,
    gaps: Mapping[str, float],
    references: Sequence[Reference],
    images: int,
) -> Combined:
    """Combine estimates, weighted by the inverse square of their usual error on references; the
    interval follows from the errors of the combination there."""
    names = [WITHOUT_REFERENCES]
    if references:
        common = set(gaps).intersection(*(each.gaps for each in references))
        names = [name for name in gaps if name in common and name != WITHOUT_REFERENCES]
    missed = {name: _errors(references, name) for name in names}
    errors = {name: _root_mean_square(missed[name], references) for name in names if references}
    trust = {name: 1 / (errors.get(name, 0.0) ** 2 + _FLOOR**2) for name in names}
    weights = {name: value / sum(trust.values()) for name, value in trust.items()}
    drops = {name: drop_at(fit_curve(references, name), gaps[name]) for name in names}
    accuracy = _share(source_accuracy - sum(weights[name] * drops[name] for name in names))
    together = sum(
        (weights[name] * missed[name] for name in names), start=np.zeros(len(references))
    )
    error, half_width = _uncertainty(together, references, accuracy, images)
    estimates = tuple(
        AccuracyEstimate(
            name,
            _share(source_accuracy - gaps[name]) if name in DIRECT else None,
            _share(source_accuracy - drops[name]) if name in drops else None,
            weights.get(name, 0.0),
            errors.get(name),
        )
        for name in gaps
    )
    low, high = _share(accuracy - half_width), _share(accuracy + half_width)
    return Combined(accuracy, low, high, estimates, error)


def _errors(references: Sequence[Reference], name: str) -> np.ndarray:
    """Returns for each reference the drop that those of other domains predict, minus the truth."""
    found: list[float] = []
    for each in references:
        others = [other for other in references if other.domain != each.domain]
        found.append(drop_at(fit_curve(others, name), each.gaps[name]) - each.drop)
    return np.array(found)


def _uncertainty(
    errors: np.ndarray, references: Sequence[Reference], accuracy: float, images: int
) -> tuple[float, float]:
    """The usual error, and half the width of the interval: Student's t with as many degrees as
    there are domains, and two more; few images add their own uncertainty."""
    domains = len({each.domain for each in references})
    known = _root_mean_square(errors, references) ** 2 * domains if domains else 0.0
    variance = (USUAL_ERROR**2 + known) / (1 + domains)
    sampling = max(accuracy * (1 - accuracy), 0.01) / images
    quantile = float(stdtrit(domains + 2, (1 + LEVEL) / 2))
    return float(np.sqrt(variance)), quantile * float(np.sqrt(variance + sampling))


def _weights(references: Sequence[Reference]) -> np.ndarray:
    """Runs that left out the same domain share one vote."""
    domains = [each.domain for each in references]
    return np.array([1 / domains.count(domain) for domain in domains])


def _root_mean_square(errors: np.ndarray, references: Sequence[Reference]) -> float:
    return float(np.sqrt(np.average(errors**2, weights=_weights(references))))


def _share(value: float) -> float:
    return float(np.clip(value, 0.0, 1.0))
