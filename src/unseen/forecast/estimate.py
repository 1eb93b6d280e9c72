"""One forecast from several estimates, by how well each did where the truth is known.

A reference is a run that left out a domain of which the labels are known: what each estimate said
there can be compared with the truth. No torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog, minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from scipy.stats import t as student

from unseen.forecast.profile import Observed, Profile

SHIFTED_SHARES = 0.2
"""Total variation between class shares from which they count as shifted."""


class ClassShare(NamedTuple):
    name: str
    predicted: float
    """How often the model answers with it."""
    training: float
    """How often it occurs among validation images."""


def class_shares(profile: Profile, observed: Observed) -> tuple[ClassShare, ...]:
    called = np.bincount(observed.scores.argmax(axis=1), minlength=len(profile.classes))
    predicted = called / len(observed.scores)
    rows = zip(profile.classes, predicted.tolist(), profile.label_shares.tolist(), strict=True)
    return tuple(ClassShare(*row) for row in rows)


def share_shift(shares: Sequence[ClassShare]) -> float:
    """Total variation between predicted and training shares: 0 the same, 1 nothing in common."""
    return sum(abs(each.predicted - each.training) for each in shares) / 2


_LEAST_IMAGES, _MOST_IMAGES, _CELLS = 100, 1000, 30_000
"""Bounds on the images that a transport looks at, and on images times classes: a second's work."""

NEIGHBOURS = 5


def fit_temperature(scores: np.ndarray, labels: np.ndarray) -> float:
    """The temperature under which labels are likeliest (Guo et al. 2017)."""

    def loss(logarithm: float) -> float:
        logs = log_softmax(scores / np.exp(logarithm), axis=1)
        return -float(logs[np.arange(len(labels)), labels].mean())

    found: Any = minimize_scalar(loss, bounds=(-3, 3), method="bounded")
    return float(np.exp(found.x))


def thresholded_confidence(source: np.ndarray, correct: np.ndarray, target: np.ndarray) -> float:
    """ATC (Garg et al. 2022): the share of target images above the threshold that as many source
    images pass as are answered correctly. `source` and `target` are certainties, any measure."""
    passed = int(np.count_nonzero(correct))
    if passed == 0:
        return 0.0
    threshold = np.sort(source)[len(source) - passed]
    return float((target >= threshold).mean())


def confidence_difference(source: np.ndarray, correct: np.ndarray, target: np.ndarray) -> float:
    """DoC (Guillory et al. 2021): accuracy falls as much as the mean confidence does."""
    return float(np.mean(correct) + target.mean() - source.mean())


def transport_cost(probabilities: np.ndarray, shares: np.ndarray) -> float:
    """The least mean cost ½‖p - e_y‖₁ = 1 - p_y of giving each image a label, when labels have to
    occur in these shares: an exact optimal transport."""
    n, classes = probabilities.shape
    image = np.repeat(np.arange(n), classes)
    label = n + np.tile(np.arange(classes), n)
    cells = np.arange(n * classes)
    values = np.ones(2 * n * classes)
    places = (np.concatenate([image, label]), np.concatenate([cells, cells]))
    sums = csr_matrix((values, places), shape=(n + classes, n * classes))
    masses = np.concatenate([np.full(n, 1 / n), shares / shares.sum()])
    # the last sum follows from the others
    found = linprog(1 - probabilities.ravel(), A_eq=sums[:-1], b_eq=masses[:-1], method="highs")
    return float(found.fun)


def transported_confidence(
    source: np.ndarray, correct: np.ndarray, target: np.ndarray, shares: np.ndarray
) -> float:
    """COT (Lu et al. 2023): 1 - [transport cost of the target's probabilities to the source's
    label shares + confidence of the source - accuracy of the source]."""
    most = min(_MOST_IMAGES, max(_LEAST_IMAGES, _CELLS // target.shape[1]))
    if len(target) > most:
        target = target[np.linspace(0, len(target) - 1, most).round().astype(np.int64)]
    too_sure = source.max(axis=1).mean() - np.mean(correct)
    return float(1 - transport_cost(target, shares) - too_sure)


def nuclear_norm(probabilities: np.ndarray) -> float:
    """‖P‖_* / √(N min(N, C)) (Deng et al. 2023): 1 where answers are certain and all classes occur
    alike, lower where they are unsure or all the same."""
    n, classes = probabilities.shape
    singular = np.linalg.svd(probabilities, compute_uv=False)
    return float(singular.sum() / np.sqrt(n * min(n, classes)))


def class_separation(features: np.ndarray, labels: np.ndarray) -> float:
    """The share of the features' variance that lies between classes, 0 to 1 (a bounded form of the
    dispersion score, Xie et al. 2023). Labels may be the model's own answers."""
    total = ((features - features.mean(axis=0)) ** 2).sum()
    within = sum(
        ((features[labels == label] - features[labels == label].mean(axis=0)) ** 2).sum()
        for label in np.unique(labels)
    )
    return float(1 - within / total) if total > 0 else 0.0


def neighbour_agreement(
    features: np.ndarray,
    answers: np.ndarray,
    known: np.ndarray,
    labels: np.ndarray,
    skip_itself: bool = False,
) -> float:
    """How often the answer is the most frequent label among the five images with the most similar
    features (by angle) whose labels are known."""
    similar = _unit(features) @ _unit(known).T
    if skip_itself:
        np.fill_diagonal(similar, -np.inf)
    nearest = labels[np.argsort(-similar, axis=1, kind="stable")[:, :NEIGHBOURS]]
    votes = (nearest[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    return float((votes.argmax(axis=1) == answers).mean())


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def certainty(logarithms: np.ndarray) -> np.ndarray:
    """Negative entropy of each image's probabilities, from their logarithms."""
    return (np.exp(logarithms) * logarithms).sum(axis=1)


NAMES = {
    "atc confidence": "ATC by confidence",
    "atc entropy": "ATC by entropy",
    "doc": "difference of confidences (DoC)",
    "cot": "optimal transport (COT)",
    "nuclear norm": "nuclear norm",
    "disagreement": "disagreement of opinions",
    "class separation": "class separation of features",
    "neighbours": "agreement with nearest validation images",
}
"""How estimates are called where people read them."""
DIRECT = ("atc confidence", "atc entropy", "doc", "cot")
"""Those that are accuracies by themselves; the others need references to become one."""


def gaps(profile: Profile, observed: Observed) -> dict[str, float]:
    """By estimate, how far the target falls behind the source: in accuracy for the direct ones, in
    the measure itself for the others. Positive is worse."""
    temperature = fit_temperature(profile.scores, profile.label)
    source, target = (
        log_softmax(np.asarray(scores, dtype=np.float64) / temperature, axis=1)
        for scores in (profile.scores, observed.scores)
    )
    correct = profile.scores.argmax(axis=1) == profile.label
    sure_source, sure_target = np.exp(source), np.exp(target)
    highest = source.max(axis=1), correct, target.max(axis=1)
    confident = sure_source.max(axis=1), correct, sure_target.max(axis=1)
    direct = {
        "atc confidence": thresholded_confidence(*highest),
        "atc entropy": thresholded_confidence(certainty(source), correct, certainty(target)),
        "doc": confidence_difference(*confident),
        "cot": transported_confidence(sure_source, correct, sure_target, profile.label_shares),
    }
    found = {name: float(correct.mean() - estimate) for name, estimate in direct.items()}
    found["nuclear norm"] = nuclear_norm(sure_source) - nuclear_norm(sure_target)
    if profile.disagreement is not None and observed.disagreement is not None:
        apart = observed.disagreement.mean() - profile.disagreement.mean()
        found["disagreement"] = float(apart)
    if profile.features is not None and observed.features is not None:
        found |= _by_features(profile, profile.features, observed, observed.features)
    return found


def _by_features(
    profile: Profile, source: np.ndarray, observed: Observed, target: np.ndarray
) -> dict[str, float]:
    """Both measures of the source minus those of the target, by the model's own answers."""
    labels = profile.label[profile.described]
    answers = profile.scores[profile.described].argmax(axis=1)
    called = observed.scores.argmax(axis=1)
    agreed = neighbour_agreement(source, answers, source, labels, skip_itself=True)
    return {
        "class separation": class_separation(source, answers) - class_separation(target, called),
        "neighbours": agreed - neighbour_agreement(target, called, source, labels),
    }


LEVEL = 0.8
"""How often intervals should hold the truth."""
USUAL_ERROR = 0.15
"""Of a combined forecast, as long as nothing else is known; it counts as much as one reference."""
_STEP, _SLOPE, _NOISE = 0.10, 0.5, 0.05
"""Standard deviations: how far from 0 and 1 step and slope usually lie, and how far from the curve
references lie."""
_RAMP = 0.05
"""The gap over which the step is climbed."""
_FLOOR = 0.02
"""No estimate is trusted to be closer than this."""


class Reference(NamedTuple):
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


class Curve(NamedTuple):
    """drop = step · tanh(gap / 0.05) + slope · gap, the step only where the gap is positive.

    Images of another domain are often answered wrong with more confidence than they deserve, which
    no gap shows; images that are easier than validation show it in full.
    """

    step: float
    slope: float

    def drop(self, gap: float) -> float:
        return float(_columns(np.array([gap]))[0] @ np.array(self))


def _columns(gaps: np.ndarray) -> np.ndarray:
    return np.stack([np.tanh(np.clip(gaps, 0, None) / _RAMP), gaps], axis=1)


class Estimate(NamedTuple):
    """One way to estimate the accuracy, before and after it was calibrated on references."""

    name: str
    plain: float | None
    """As it is; None for a measure that is no accuracy by itself."""
    accuracy: float | None
    """Calibrated; None where it takes references and there are none."""
    weight: float
    error: float | None
    """Root mean square over references, each predicted from those of other domains."""


class Combined(NamedTuple):
    accuracy: float
    low: float
    high: float
    estimates: tuple[Estimate, ...]
    error: float
    """Usual error, as the references show it."""


def fit_curve(references: Sequence[Reference], name: str) -> Curve:
    """Drop against gap, every domain counting the same; with few references hardly away from
    drop = gap. (The mean of a Bayesian linear regression around that line.)"""
    columns = _columns(np.array([each.gaps[name] for each in references]))
    drops = np.array([each.drop for each in references])
    weights = _weights(references)
    prior = _NOISE**2 / np.array([_STEP, _SLOPE]) ** 2
    precision = columns.T @ (weights[:, None] * columns) + np.diag(prior)
    moments = columns.T @ (weights * drops) + prior * np.array([0.0, 1.0])
    step, slope = np.linalg.solve(precision, moments)
    return Curve(float(step), float(slope))


def combine(
    source_accuracy: float,
    gaps: Mapping[str, float],
    references: Sequence[Reference],
    images: int,
) -> Combined:
    """Estimates weighted by the inverse of their usual error on references; the interval from the
    errors of the combination there."""
    names = [name for name in gaps if _is_usable(name, references)]
    missed = {name: _errors(references, name) for name in names}
    weights = _trust(missed, references)
    drops = {name: fit_curve(references, name).drop(gaps[name]) for name in names}
    drop = sum(weights[name] * drops[name] for name in names)
    accuracy = float(np.clip(source_accuracy - drop, 0.0, 1.0))
    together = sum(
        (weights[name] * missed[name] for name in names), start=np.zeros(len(references))
    )
    error, half_width = _uncertainty(together, references, accuracy, images)
    estimates = tuple(
        Estimate(
            name=name,
            plain=_accuracy(source_accuracy - gaps[name]) if name in DIRECT else None,
            accuracy=_accuracy(source_accuracy - drops[name]) if name in drops else None,
            weight=weights.get(name, 0.0),
            error=_root_mean_square(missed[name], references) if references and name in missed
            else None,
        )
        for name in gaps
    )  # fmt: skip
    low, high = max(0.0, accuracy - half_width), min(1.0, accuracy + half_width)
    return Combined(accuracy, low, high, estimates, error)


def _is_usable(name: str, references: Sequence[Reference]) -> bool:
    """Without references, only what is an accuracy by itself."""
    return all(name in each.gaps for each in references) if references else name in DIRECT


def _errors(references: Sequence[Reference], name: str) -> np.ndarray:
    """Of each reference: the drop that references of the other domains predict, minus the truth."""
    found: list[float] = []
    for each in references:
        others = [other for other in references if other.domain != each.domain]
        found.append(fit_curve(others, name).drop(each.gaps[name]) - each.drop)
    return np.array(found)


def _trust(missed: Mapping[str, np.ndarray], references: Sequence[Reference]) -> dict[str, float]:
    """Weights that add up to one."""
    if not references:
        return dict.fromkeys(missed, 1 / len(missed))
    trust = {
        name: 1 / np.hypot(_root_mean_square(errors, references), _FLOOR)
        for name, errors in missed.items()
    }
    return {name: value / sum(trust.values()) for name, value in trust.items()}


def _uncertainty(
    errors: np.ndarray, references: Sequence[Reference], accuracy: float, images: int
) -> tuple[float, float]:
    """The usual error, and half the width of the interval: Student's t with as many degrees as
    there are domains, and two more; few images add their own uncertainty."""
    domains = len({each.domain for each in references})
    known = _root_mean_square(errors, references) ** 2 * domains if domains else 0.0
    variance = (USUAL_ERROR**2 + known) / (1 + domains)
    sampling = max(accuracy * (1 - accuracy), 0.01) / images
    quantile = float(student.ppf((1 + LEVEL) / 2, domains + 2))
    return float(np.sqrt(variance)), quantile * float(np.sqrt(variance + sampling))


def _weights(references: Sequence[Reference]) -> np.ndarray:
    """Runs that left out the same domain share one vote."""
    domains = [each.domain for each in references]
    return np.array([1 / domains.count(domain) for domain in domains])


def _root_mean_square(errors: np.ndarray, references: Sequence[Reference]) -> float:
    return float(np.sqrt(np.average(errors**2, weights=_weights(references))))


def _accuracy(value: float) -> float:
    return float(np.clip(value, 0.0, 1.0))
