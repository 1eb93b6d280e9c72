"""Means, intervals and paired differences over seeds and domains; plain functions of numbers."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

CONFIDENCE = 0.95
_Key = TypeVar("_Key", bound=Hashable)


class Estimate(NamedTuple):
    """A mean over `n` seeds and the half width of its interval (None: one seed shows no spread)."""

    mean: float
    half_width: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and 95 % t-interval; None where there are no values."""
    if not values:
        return None
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    return Estimate(fmean(values), _t_quantile(n - 1) * stdev(values) / math.sqrt(n), n)


def paired_difference(first: Mapping[_Key, float], second: Mapping[_Key, float]) -> Estimate | None:
    """`second` minus `first` over the seeds (or domains) that both have; None if they share none.

    Pairing takes out what a seed does to both, so the interval is the one that tells methods apart.
    """
    return estimate([second[key] - first[key] for key in first if key in second])


def macro_mean(by_domain: Mapping[str, float], domains: Iterable[str]) -> float | None:
    """Mean in which every domain counts the same, however many images it has.

    None if a domain has no number: a mean over fewer domains would be another quantity.
    """
    values = [by_domain.get(domain, math.nan) for domain in domains]
    if not values or not all(math.isfinite(value) for value in values):
        return None
    return fmean(values)


def worst_domain(by_domain: Mapping[str, float]) -> tuple[str, float]:
    """Name and value of the lowest domain, the first of equal ones."""
    name = min(by_domain, key=by_domain.__getitem__)
    return name, by_domain[name]


def _t_quantile(degrees_of_freedom: int) -> float:
    """Two-sided Student quantile. scipy.special has it at a third of scipy.stats' import time."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, (1 + CONFIDENCE) / 2))
