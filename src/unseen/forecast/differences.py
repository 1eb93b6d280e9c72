"""What is different about new images: statistics, features, and the strangest of them. No torch."""

from typing import NamedTuple

import numpy as np

from unseen.forecast.profile import STATISTICS, Observed, Profile

LARGEST = 10.0
"""Standardised differences are cut here: two constants that differ would be infinitely apart."""
NEIGHBOURS = 5
_FEWEST = 10
"""Images on either side below which a classifier is not asked."""
_MOST = 600
"""Images on either side that a classifier looks at."""


class Difference(NamedTuple):
    """Of one statistic between the new images and a training domain."""

    statistic: str
    new: float
    domain: float
    size: float
    """Standardised (Cohen's d): 0.2 is small, 0.8 is large."""


class DomainDifference(NamedTuple):
    """Between the new images and one training domain."""

    domain: str
    statistics: tuple[Difference, ...]
    """The largest first."""
    auc: float | None
    """Of a cross-validated classifier that tells new images from this domain's: 0.5 is chance."""


class Differences(NamedTuple):
    domains: tuple[DomainDifference, ...]
    """The closest first: the one that new images are hardest to tell from."""
    auc: float | None
    """As above, against images of all training domains together."""
    measured_by: str
    """What AUC and strangeness look at: features, or image statistics."""
    strangeness: np.ndarray
    """`[images]`: the share of validation images that lie closer to the others, 0 to 1."""
    distance: np.ndarray
    """`[images]`: to the nearest validation images; 1 is usual among these."""

    @property
    def closest(self) -> DomainDifference:
        return self.domains[0]

    @property
    def strangest(self) -> np.ndarray:
        """Positions of the images, the strangest first."""
        return np.argsort(-self.distance, kind="stable")


def find_differences(profile: Profile, observed: Observed) -> Differences | None:
    """By features where both sides have them, else by image statistics; None without either."""
    by_features = profile.features is not None and observed.features is not None
    source = profile.features if by_features else profile.statistics
    target = observed.features if by_features else observed.statistics
    if source is None or target is None or not len(source) or not len(target):
        return None
    source, target = _standardised(source, target)
    own = profile.described_domain
    found = [
        DomainDifference(
            name,
            _statistics(profile.statistics[own == number], observed.statistics),
            tell_apart(source[own == number], target),
        )
        for number, name in enumerate(profile.domains)
        if (own == number).any()
    ]
    near = {
        name: _nearest(target, source[own == number]).mean()
        for number, name in enumerate(profile.domains)
        if (own == number).any()
    }
    found.sort(key=lambda each: (1.0 if each.auc is None else each.auc, near[each.domain]))
    usual = _nearest(source, source, skip_itself=True)
    distance = _nearest(target, source)
    return Differences(
        tuple(found),
        tell_apart(source, target),
        "features" if by_features else "image statistics",
        np.searchsorted(np.sort(usual), distance) / len(usual),
        distance / (float(np.median(usual)) or 1.0),
    )


def standardised_difference(new: np.ndarray, old: np.ndarray) -> float:
    """Cohen's d with the mean of both variances, cut at `LARGEST`."""
    apart = float(new.mean() - old.mean())
    spread = float(np.sqrt((new.var() + old.var()) / 2))
    if abs(apart) <= 1e-9:
        return 0.0
    return float(np.clip(apart / max(spread, 1e-12), -LARGEST, LARGEST))


def tell_apart(source: np.ndarray, target: np.ndarray) -> float | None:
    """AUC of a logistic regression, five folds; None with too few images."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    source, target = _evenly(source), _evenly(target)
    if min(len(source), len(target)) < _FEWEST:
        return None
    values = np.concatenate([source, target])
    is_new = np.repeat([0, 1], [len(source), len(target)])
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = cross_val_predict(model, values, is_new, cv=folds, method="decision_function")
    return float(roc_auc_score(is_new, found))


def _statistics(source: np.ndarray, target: np.ndarray | None) -> tuple[Difference, ...]:
    if target is None or not len(source):
        return ()
    found: list[Difference] = []
    for place, name in enumerate(STATISTICS):
        old, new = (each[:, place][np.isfinite(each[:, place])] for each in (source, target))
        if len(old) and len(new):
            size = standardised_difference(new.astype(np.float64), old.astype(np.float64))
            found.append(Difference(name, float(new.mean()), float(old.mean()), size))
    return tuple(sorted(found, key=lambda each: -abs(each.size)))


def _standardised(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By mean and spread of the source; columns that are not known everywhere are left out."""
    known = np.isfinite(source).all(axis=0) & np.isfinite(target).all(axis=0)
    source, target = source[:, known].astype(np.float64), target[:, known].astype(np.float64)
    centre, spread = source.mean(axis=0), source.std(axis=0)
    spread = np.where(spread > 1e-6 * np.abs(centre).max(initial=1.0), spread, 1.0)
    limits = (-LARGEST, LARGEST)
    return np.clip((source - centre) / spread, *limits), np.clip(
        (target - centre) / spread, *limits
    )


def _nearest(points: np.ndarray, others: np.ndarray, skip_itself: bool = False) -> np.ndarray:
    """Mean distance of each point to its nearest others."""
    squares = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * points @ others.T
    distances = np.sqrt(np.clip(squares, 0, None))
    if skip_itself:
        np.fill_diagonal(distances, np.inf)
    number = max(1, min(NEIGHBOURS, len(others) - skip_itself))
    nearest = np.sort(distances, axis=1)[:, :number]
    return np.where(np.isfinite(nearest), nearest, 0.0).mean(axis=1)


def _evenly(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= _MOST:
        return rows
    return rows[np.linspace(0, len(rows) - 1, _MOST).round().astype(np.int64)]
