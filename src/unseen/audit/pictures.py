"""What gives a class away besides what is shown, and domains that are two, by statistics."""

from collections.abc import Iterator

import numpy as np

from unseen.audit.findings import Example, Finding
from unseen.audit.measure import SMALL, STATISTICS, Measured
from unseen.data.index import Index

GIVEN_AWAY = 0.97
"""AUC of one statistic for one class of a domain, from which it gives the class away."""
MARKED, MARKED_PLACES = 1.5, 10
"""Standardised difference between the edges of a class and of the rest of its domain, and at how
many places, from which something is always there."""
APART, APART_BY_LOOK = 0.8, 0.73
"""Share of the variance between two parts of a domain from which they are two: of a statistic, and
along the line between two groups of features. It is 0.64 where values are normally distributed."""
_LEAST = {
    "pixels": np.log(1.5), "brightness": 20, "contrast": 15, "saturation": 15, "warmth": 15,
    "border brightness": 40, "border contrast": 20, "look": 0,
}  # fmt: skip
"""By how much the means of two parts differ at least, in gray values; of sizes, in logarithms."""
_FEWEST, _SHOWN = 20, 12


def classes_given_away(index: Index, measured: Measured, size: int) -> Iterator[Finding]:
    """Tell of classes that one number, or a mark at a fixed place, tells from the others."""
    told, examples = list[str](), list[Example]()
    for number, domain in enumerate(index.domains):
        rows = index.rows(domain)
        values = measured.statistics[rows]
        for label, name in enumerate(index.classes):
            own = index.labels[rows] == label
            if min(own.sum(), (~own).sum()) < _FEWEST:
                continue
            ways = [*_statistics_that_tell(values, own)]
            if size >= SMALL and measured.edges.size:
                ways += _mark(measured.edges[:, number], index.labels[rows], label)
            if ways:
                told.append(f"{name} in {domain} ({', '.join(ways)})")
                examples += _some(rows[own], f"{domain}, {name}")
    if told:
        text = (
            f"Something besides what is shown tells a class: {'; '.join(told)}. A model may learn "
            "that, and fail where it is missing: cut it off, or bring all images to one form."
        )
        yield Finding("class given away", len(told), text, tuple(examples))


def _some(rows: np.ndarray, caption: str) -> list[Example]:
    return [Example(caption, (row,)) for row in rows[:: -(-len(rows) // _SHOWN)].tolist()]


def _statistics_that_tell(values: np.ndarray, own: np.ndarray) -> Iterator[str]:
    for name, column in zip(STATISTICS, values.T, strict=True):
        here, there = (part[np.isfinite(part)] for part in (column[own], column[~own]))
        if min(len(here), len(there)) >= _FEWEST and _told_apart(here, there) >= GIVEN_AWAY:
            yield f"{name} {np.median(here):.3g}, others {np.median(there):.3g}"


def _told_apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the AUC by which values tell two groups apart, whichever has the larger ones."""
    other = np.sort(other)
    below = np.searchsorted(other, one), np.searchsorted(other, one, side="right")
    share = float(np.mean(below) / len(other))  # ties count half
    return max(share, 1 - share)


def _mark(edges: np.ndarray, labels: np.ndarray, label: int) -> Iterator[str]:
    """Say where, if edges of a class lie at the same places, much more than those of others."""
    counts = np.array([(labels == label).sum(), ((labels != label) & (labels >= 0)).sum()])
    sums = np.stack([edges[:, label], edges.sum(axis=1) - edges[:, label]], axis=1)
    means, squares = sums / counts[:, None, None, None]
    spread = (squares - means**2).clip(0).mean(axis=0) + 4.0  # steps of two gray values are none
    away = np.abs(means[0] - means[1]) / np.sqrt(spread) * (np.abs(means[0]) > np.abs(means[1]))
    rows, columns = np.nonzero(away.max(axis=0) >= MARKED)
    if len(rows) >= MARKED_PLACES:
        y, x = (int(np.median(place) * 3 / away.shape[-1]) for place in (rows, columns))
        where = f"{('top', 'middle', 'bottom')[y]} {('left', 'middle', 'right')[x]}"
        yield f"the same mark at the {where} of the image"


def domains_that_are_two(
    index: Index, statistics: np.ndarray, features: np.ndarray | None
) -> Iterator[Finding]:
    """Tell of domains whose images fall into two parts within most classes."""
    told, examples = list[str](), list[Example]()
    for domain in index.domains:
        rows = index.rows(domain)
        ways = dict[str, np.ndarray](zip(STATISTICS, statistics[rows].T, strict=True))
        ways["pixels"] = np.log(ways["width"] * ways["height"])
        if features is not None and len(rows) >= 5 * _FEWEST:
            ways["look"] = _line_between_groups(features[rows], index.labels[rows])
        for name in (name for name in _LEAST if name in ways):
            known = rows[np.isfinite(ways[name])]
            values = ways[name][np.isfinite(ways[name])]
            high = _parted(name, values, index.labels[known])
            if high is not None:
                told.append(f"{domain} (by {name}: {1 - high.mean():.0%} and {high.mean():.0%})")
                examples += _some(known[~high], f"{domain}, one part")
                examples += _some(known[high], f"{domain}, the other part")
                break
    if told:
        text = (
            f"A domain looks like two: {'; '.join(told)}. If its images come from two places or "
            "devices, make them two domains: a model, and its estimate, gain from more of them."
        )
        yield Finding("two domains in one", len(told), text, tuple(examples))


def _parted(name: str, values: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Return which images are in the higher of two parts (Otsu 1979); None where they are one, or
    where the parts are classes."""
    ordered, number = np.sort(values.astype(np.float64)), len(values)
    if number < 2 * _FEWEST:
        return None
    below, sums = np.arange(1, number), np.cumsum(ordered)[:-1]
    gap = (ordered.sum() - sums) / (number - below) - sums / below
    fair = (below >= 0.1 * number) & (below <= 0.9 * number) & (np.diff(ordered) > 0)
    fair &= gap >= _LEAST[name]
    between = np.where(fair, gap**2 * below * (number - below) / number**2, 0.0)
    place, apart = int(between.argmax()), APART_BY_LOOK if name == "look" else APART
    if not between.any() or between[place] < apart * ordered.var():
        return None
    high = values > (ordered[place] + ordered[place + 1]) / 2
    mixed = [0.1 <= high[labels == label].mean() <= 0.9 for label in np.unique(labels)]
    return high if np.mean(mixed) > 0.5 else None


def _line_between_groups(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return where images lie between the two groups that their features fall into, when what
    classes have in common is taken away."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    values = features.astype(np.float32)
    for own in (labels == label for label in np.unique(labels)):
        values[own] -= values[own].mean(axis=0)
    values = PCA(min(20, *values.shape), random_state=0).fit_transform(values)
    low, high = KMeans(2, random_state=0).fit(values).cluster_centers_
    return values @ (high - low)
