"""One forecast from several estimates, by how well each did where the truth is known.

A reference is a run that left out a domain of which the labels are known: what each estimate said
there can be compared with the truth. No torch.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from unseen.forecast.estimates import DIRECT

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
