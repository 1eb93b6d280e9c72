"""Accuracy without labels: what answers to unlabelled images say, next to those on validation.

Every estimate compares answers on new images (the target) with answers on validation images of the
training domains (the source), whose labels are known. No torch.
"""

from typing import Any

import numpy as np
from scipy.optimize import linprog, minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import log_softmax

from unseen.forecast.profile import Observed, Profile

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
