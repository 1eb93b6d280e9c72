"""Differences between new images and validation images in statistics and
features, and which images are outliers.

No torch.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from unseen.forecast.profile import STATISTICS, ModelOutputs, Profile
from unseen.results.statistics import evenly

LARGEST = 10.0
"""Standardised differences are cut here: two constants that differ would be infinitely apart."""
NEIGHBOURS = 5
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

    @property
    def outliers(self) -> np.ndarray:
        """Positions of the images, the farthest from validation images first."""
        return np.argsort(-self.distance, kind="stable")


def find_differences(profile: Profile, outputs: ModelOutputs) -> Differences | None:
    """Compare by features where both sides have them, else by image statistics; None without
    either."""
    by_features = profile.features is not None and outputs.features is not None
    source = profile.features if by_features else profile.statistics
    target = outputs.features if by_features else outputs.statistics
    if source is None or target is None or not len(source) or not len(target):
        return None
    source, target = _standardised(source, target)
    found: list[tuple[float, float, DomainDifference]] = []
    for number, name in enumerate(profile.domains):
        own = profile.described_domain == number
        if own.any():
            auc = tell_apart(source[own], target)
            statistics = _statistics(profile.statistics[own], outputs.statistics)
            near = float(_nearest(target, source[own]).mean())
            order = 1.0 if auc is None else auc
            found.append((order, near, DomainDifference(name, statistics, auc)))
    found.sort(key=lambda each: each[:2])
    usual = float(np.median(_nearest(source, source, skip_itself=True)))
    return Differences(
        tuple(domain for _, _, domain in found),
        tell_apart(source, target),
        "features" if by_features else "image statistics",
        _nearest(target, source) / (usual or 1.0),
    )


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


def _standardised(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardise by mean and spread of the source; columns not known everywhere are left out."""
    known = np.isfinite(source).all(axis=0) & np.isfinite(target).all(axis=0)
    source, target = source[:, known].astype(np.float64), target[:, known].astype(np.float64)
    centre, spread = source.mean(axis=0), source.std(axis=0)
    spread = np.where(spread > 1e-6 * np.abs(centre).max(initial=1.0), spread, 1.0)
    source, target = (source - centre) / spread, (target - centre) / spread
    return np.clip(source, -LARGEST, LARGEST), np.clip(target, -LARGEST, LARGEST)


def _nearest(points: np.ndarray, others: np.ndarray, skip_itself: bool = False) -> np.ndarray:
    """Return the mean distance of each point to its nearest others."""
    distances = cdist(points, others)
    if skip_itself:
        np.fill_diagonal(distances, np.inf)
    number = max(1, min(NEIGHBOURS, len(others) - skip_itself))
    nearest = np.sort(distances, axis=1)[:, :number]
    return np.where(np.isfinite(nearest), nearest, 0.0).mean(axis=1)
