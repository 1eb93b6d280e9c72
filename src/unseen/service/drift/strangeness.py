"""How strange one picture is beside the validation images, by what can be measured on it."""

from typing import NamedTuple

import numpy as np

from unseen.forecast.image_statistics import STATISTICS
from unseen.forecast.profile import Profile

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
