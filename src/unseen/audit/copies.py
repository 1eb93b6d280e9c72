"""Copies of images: exact, re-encoded, resized or flipped; and groups that keep them together."""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from unseen.audit.findings import Example, Finding
from unseen.audit.pictures import FREQUENCIES, SMALL
from unseen.data.index import Index

SIMILAR, SIMILAR_SMALL = 0.985, 0.998
"""Cosine of two images' low frequencies from which they are copies; of images of few pixels, such
as digits, which are alike anyway."""
_MOST_PAIRS, _SAMPLED, _BLOCK = 5_000_000, 500, 50_000
_WAVES = np.add.outer(np.arange(FREQUENCIES), np.arange(FREQUENCIES)).ravel()
_LOWEST = np.argsort(_WAVES, kind="stable")[1:15]
"""Frequencies by which similar images are looked up."""
_FLIPPED = np.tile((-1.0) ** np.arange(FREQUENCIES), FREQUENCIES).astype(np.float32)
"""Signs of the frequencies of an image that is flipped."""


def find_copies(shapes: np.ndarray, size: int) -> np.ndarray:
    """Return pairs of rows `[pairs, 2]` of images that are copies, the lower row first."""
    similar = SIMILAR if size >= SMALL else SIMILAR_SMALL
    _, first, same = np.unique(shapes, axis=0, return_index=True, return_inverse=True)
    equal = np.stack([first[same.ravel()], np.arange(len(shapes))], axis=1)
    found = [equal[equal[:, 0] < equal[:, 1]]]
    values = shapes[first].astype(np.float32)
    for others in (values, values * _FLIPPED):
        near = _neighbours(values[:, _LOWEST], others[:, _LOWEST], similar)
        for start in range(0, len(near), _BLOCK):
            one, other = near[start : start + _BLOCK].T
            alike = np.einsum("ij,ij->i", values[one], others[other]) > similar
            found.append(np.sort(first[np.stack([one, other], axis=1)[alike]], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _neighbours(points: np.ndarray, others: np.ndarray, similar: float) -> np.ndarray:
    """Return the pairs that lie so close that they may be similar; closer ones, where there are too
    many, as among the frames of films."""
    tree, other, every = KDTree(points), KDTree(others), max(1, len(points) // _SAMPLED)
    radius = float(np.sqrt(2 - 2 * similar))
    while KDTree(points[::every]).count_neighbors(other, radius) * every > _MOST_PAIRS:
        radius /= 2
    if np.array_equal(points, others):
        return tree.query_pairs(radius, output_type="ndarray")
    near = tree.sparse_distance_matrix(other, radius, output_type="coo_matrix")
    return np.stack([near.row, near.col], axis=1)[near.row < near.col]


def groups_with_copies(index: Index, pairs: np.ndarray) -> tuple[str, ...]:
    """Return the group of each image, those of copies united; it is called by its first one."""
    names = index.groups or index.names
    _, first, given = np.unique(names, return_index=True, return_inverse=True)
    same = np.stack([first[given.ravel()], np.arange(len(index))], axis=1)
    one, other = np.concatenate([pairs, same]).T
    links = coo_matrix((np.ones(len(one)), (one, other)), (len(index), len(index)))
    _, group = connected_components(links, directed=False)
    _, leaders = np.unique(group, return_index=True)
    return tuple(names[row] for row in leaders[group])


def copies_found(index: Index, pairs: np.ndarray) -> Iterator[Finding]:
    """Tell of copies, by what is wrong with them."""
    one, other = pairs.T
    domains = index.domain_of[one] != index.domain_of[other]
    classes = (index.labels[one] != index.labels[other]) & ~domains
    for kind, chosen, harm in (
        ("copies between domains", domains, "a model has seen what it will be tested on"),
        ("copies between classes", classes, "one of the two labels is wrong"),
        ("copies", ~domains & ~classes, "they may be in training and in what measures it"),
    ):
        if chosen.any():
            text = (
                f"{chosen.sum():,} pairs of images are the same, re-encoded, resized or flipped: "
                f"{harm}. To keep copies in one split, and out of training where one is unseen, "
                "write `unseen prepare … --groups copies.csv`, and set data.group=copies.csv."
            )
            found = tuple(_example(index, *pair) for pair in pairs[chosen].tolist())
            yield Finding(kind, len(found), text, found)


def _example(index: Index, *rows: int) -> Example:
    homes = [index.domains[index.domain_of[row]] for row in rows]
    classes = [index.classes[index.labels[row]] if index.labels[row] >= 0 else "" for row in rows]
    places = dict.fromkeys(map("/".join, zip(homes, classes, strict=True)))
    return Example(" = ".join(places), rows)
