"""Everything that is measured on prepared images in one pass, and what it says: what gives a class
away besides what is shown, and domains that are two."""

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
from PIL import Image
from scipy.fft import dct
from scipy.stats import rankdata

from unseen.audit.findings import Example, Finding
from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset, FileDataset
from unseen.data.index import Index
from unseen.data.prepare import PreparedImages
from unseen.results.files import read_arrays_if_whole, write_arrays

STATISTICS = (
    "width", "height", "bytes per pixel", "brightness", "contrast", "saturation", "warmth",
    "border brightness", "border contrast",
)  # fmt: skip
"""Of an image; those of the file, which are the first three, are NaN where it was not looked at.
Colours are 0 to 255."""
FREQUENCIES = 16
SIDE = 64
"""Pixels of the copy on which edges are measured, or a few more."""
SMALL = 64
"""Side of an image below which things stand at fixed places, as digits do, and look alike."""
_VERSION, _CHUNK = 4, 256
_MOST_CELLS = 600
"""Domains times classes above which edges are not averaged: it would take too much memory."""
_OPENED = 40
"""Files of a class in a domain whose heads are read, at most."""
_FAINTEST = 2.0
"""Gray values of spread below which an image counts as flat: its noise is not magnified."""

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

Measured = Mapping[str, np.ndarray]
"""`shapes`, float16 `[images, 256]`: low frequencies of green, without the mean, of length one;
`statistics` `[images, statistics]`; `brightest` `[images]`: the largest value of green; `edges`
`[2, domains, classes, 2, side, side]`: sums of steps to the right and down, then of their squares,
empty where there are too many classes."""


def measure(dataset: Dataset, prepared: PreparedImages) -> Measured:
    """Measure all images, or read what was measured before."""
    index = prepared.index
    about = (_VERSION, prepared.content, prepared.left_out, prepared.size, prepared.form)
    rows = index.labels.tobytes() + index.domain_of.tobytes()
    key = hashlib.sha256(repr(about).encode() + rows).hexdigest()[:32]
    file = cache_folder() / "audits" / f"{key}.npz"
    if known := read_arrays_if_whole(file):
        return known
    step, cells = max(1, prepared.size // SIDE), (len(index.domains), len(index.classes))
    side = len(range(0, prepared.size, step))
    edges = np.zeros((2, *cells, 2, side, side) if np.prod(cells) <= _MOST_CELLS else 0, "f4")
    parts = list[tuple[np.ndarray, ...]]()
    for start in range(0, len(index), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(index)))
        pixels = prepared.batch(rows).permute(0, 2, 3, 1).numpy()
        green = pixels[..., 1].astype(np.float32)
        sides = (pixels[:, 0], pixels[:, -1], pixels[:, :, 0], pixels[:, :, -1])
        colours = _colours(pixels[:, :: 2 * step, :: 2 * step], np.concatenate(sides, axis=1))
        if edges.size:
            _add_edges(edges, green[:, ::step, ::step], index.domain_of[rows], index.labels[rows])
        parts.append((_shapes(green), colours, green.max(axis=(1, 2))))
    shapes, colours, brightest = map(np.concatenate, zip(*parts, strict=True))
    statistics = np.concatenate([_of_files(dataset, index), colours], axis=1)
    known = {"shapes": shapes, "statistics": statistics, "brightest": brightest, "edges": edges}
    write_arrays(file, known)
    return known


def _shapes(green: np.ndarray) -> np.ndarray:
    waves = np.asarray(dct(np.eye(green.shape[1], dtype=np.float32), axis=0, norm="ortho"))
    found = np.zeros((len(green), FREQUENCIES, FREQUENCIES), dtype=np.float32)
    lowest = waves[:FREQUENCIES] @ green @ waves[:FREQUENCIES].T / green.shape[1]
    found[:, : lowest.shape[1], : lowest.shape[2]] = lowest
    found[:, 0, 0] = 0
    found = found.reshape(len(green), -1)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return (found / np.maximum(lengths, _FAINTEST)).astype(np.float16)


def _colours(small: np.ndarray, border: np.ndarray) -> np.ndarray:
    colours = small.reshape(len(small), -1, 3).astype(np.float32)
    border = border.mean(axis=2, dtype=np.float32)  # of one colour alone, hues are two domains
    gray, warm = colours.mean(axis=2), colours[..., 0] - colours[..., 2]
    means = [each.mean(axis=1) for each in (gray, np.ptp(colours, axis=2), warm, border)]
    return np.stack([means[0], gray.std(axis=1), *means[1:], border.std(axis=1)], axis=1)


def _add_edges(
    edges: np.ndarray, gray: np.ndarray, domain_of: np.ndarray, labels: np.ndarray
) -> None:
    """Add the edges of images to those of their class in their domain."""
    steps = np.zeros((len(gray), *edges.shape[3:]), dtype=np.float32)
    steps[:, 0, :, 1:] = np.diff(gray, axis=2)
    steps[:, 1, 1:] = np.diff(gray, axis=1)
    known = (labels >= 0) & (labels < edges.shape[2])
    for domain, label in np.unique(np.stack([domain_of, labels], axis=1)[known], axis=0).tolist():
        own = steps[(domain_of == domain) & (labels == label)]
        edges[:, domain, label] += own.sum(axis=0), np.square(own).sum(axis=0)


def _of_files(dataset: Dataset, index: Index) -> np.ndarray:
    """Read the sizes of images from the heads of their files: of some in each class of a domain."""
    found = np.full((len(index), 3), np.nan, dtype=np.float32)
    if not isinstance(dataset, FileDataset):
        return found
    positions = {name: place for place, name in enumerate(dataset.index().names)}
    cells = index.domain_of * (len(index.classes) + 2) + index.labels
    for cell in np.unique(cells):
        for row in _some(np.flatnonzero(cells == cell), _OPENED):
            path = dataset.path(positions[index.names[row]])
            try:
                with Image.open(path) as image:
                    width, height = image.size
                found[row] = width, height, path.stat().st_size / (width * height)
            except (OSError, Image.DecompressionBombError):  # of another reader
                continue
    return found


def _some(rows: np.ndarray, most: int) -> list[int]:
    return rows[:: -(-len(rows) // most)].tolist()


def _examples(rows: np.ndarray, caption: str) -> list[Example]:
    return [Example(caption, (row,)) for row in _some(rows, _SHOWN)]


def classes_given_away(index: Index, measured: Measured, size: int) -> Iterator[Finding]:
    """Tell of classes that one number, or a mark at a fixed place, tells from the others."""
    told, examples = list[str](), list[Example]()
    for number, domain in enumerate(index.domains):
        rows = index.rows(domain)
        labels, edges = index.labels[rows], measured["edges"]
        for label, name in enumerate(index.classes):
            own = labels == label
            if min(own.sum(), (~own).sum()) < _FEWEST:
                continue
            ways = [*_statistics_that_tell(measured["statistics"][rows], labels, label, size)]
            if size >= SMALL and edges.size:
                ways += _mark(edges[:, number], labels, label)
            if ways:
                told.append(f"{name} in {domain} ({', '.join(ways)})")
                examples += _examples(rows[own], f"{domain}, {name}")
    if told:
        text = (
            f"Something besides what is shown tells a class: {'; '.join(told)}. A model may learn "
            "that, and fail where it is missing: cut it off, or bring all images to one form."
        )
        yield Finding("class given away", len(told), text, tuple(examples))


def _statistics_that_tell(
    values: np.ndarray, labels: np.ndarray, label: int, size: int
) -> Iterator[str]:
    """Name the numbers by which a class is told from the others. Things differ in how bright they
    are and in how far they reach, as digits do: but for sizes, a number counts only where the class
    stands further apart from every other one than these lie from each other. How well a file of few
    pixels is compressed says what it shows."""
    own = labels == label
    for name, column in zip(STATISTICS, values.T, strict=True):
        known = np.isfinite(column) & (name != "bytes per pixel" or size >= SMALL)
        here, there = column[own & known], column[~own & known]
        if min(len(here), len(there)) < _FEWEST:
            continue
        ranks = rankdata(column[known])[own[known]]
        share = (ranks.mean() - (len(here) + 1) / 2) / len(there)  # AUC; ties count half
        if max(share, 1 - share) < GIVEN_AWAY:
            continue
        middle = float(np.median(here))
        classes = (known & (labels == other) for other in {*labels[~own & known]})
        others = np.array([np.median(column[rows]) for rows in classes])
        if name in ("width", "height") or np.abs(others - middle).min() > np.ptp(others):
            yield f"{name} {middle:.3g}, others {np.median(there):.3g}"


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
                examples += _examples(known[~high], f"{domain}, one part")
                examples += _examples(known[high], f"{domain}, the other part")
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
