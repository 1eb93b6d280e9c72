"""Everything that an audit measures on prepared images, in one pass, and kept for the next time."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy.fft import dct

from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset, FileDataset
from unseen.data.index import Index
from unseen.data.prepare import PreparedImages
from unseen.results.files import read_arrays_if_whole, write_arrays

STATISTICS = (
    "width", "height", "bytes per pixel", "brightness", "contrast", "saturation", "warmth",
    "border brightness", "border contrast",
)  # fmt: skip
"""Of an image; those of the file are NaN where it was not looked at. Colours are 0 to 255."""
FREQUENCIES = 16
SIDE = 64
"""Pixels of the copy on which edges are measured, or a few more."""
SMALL = 64
"""Side of an image below which things stand at fixed places, as digits do, and look alike."""
_VERSION, _CHUNK = 2, 256
_MOST_CELLS = 600
"""Domains times classes above which edges are not averaged: it would take too much memory."""
_OPENED = 40
"""Files of a class in a domain whose heads are read, at most."""
_FAINTEST = 2.0
"""Gray values of spread below which an image counts as flat: its noise is not magnified."""


class Measured(NamedTuple):
    """Arrays with a row for each image, and the edges of each class in each domain."""

    shapes: np.ndarray
    """float16 `[images, 256]`: low frequencies of green, without the mean, of length one."""
    statistics: np.ndarray
    """`[images, statistics]`"""
    brightest: np.ndarray
    """`[images]`: the largest value of green, 0 to 255."""
    edges: np.ndarray
    """`[2, domains, classes, 2, side, side]`: sums of steps to the right and down, then of their
    squares; nothing where there are too many classes."""


def measure(dataset: Dataset, prepared: PreparedImages) -> Measured:
    """Measure all images, or read what was measured before."""
    index = prepared.index
    about = (_VERSION, prepared.content, prepared.left_out, prepared.size, prepared.form)
    rows = index.labels.tobytes() + index.domain_of.tobytes()
    key = hashlib.sha256(repr(about).encode() + rows).hexdigest()[:32]
    file = cache_folder() / "audits" / f"{key}.npz"
    known = read_arrays_if_whole(file)
    if known.keys() != set(Measured._fields):
        step = max(1, prepared.size // SIDE)
        side = len(range(0, prepared.size, step))
        cells = len(index.domains), len(index.classes)
        edges = np.zeros((2, *cells, 2, side, side) if np.prod(cells) <= _MOST_CELLS else 0, "f4")
        parts = zip(*_parts(prepared, step, edges), strict=True)
        shapes, statistics, brightest = map(np.concatenate, parts)
        statistics = np.concatenate([_of_files(dataset, index), statistics], axis=1)
        known = Measured(shapes, statistics, brightest, edges)._asdict()
        write_arrays(file, known)
    return Measured(**known)


def _parts(
    prepared: PreparedImages, step: int, edges: np.ndarray
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the measures of some images at a time, and add their edges to those of their class."""
    index = prepared.index
    for start in range(0, len(index), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(index)))
        pixels = prepared.batch(rows).permute(0, 2, 3, 1).numpy()
        green = pixels[..., 1].astype(np.float32)
        border = (green[:, 0], green[:, -1], green[:, :, 0], green[:, :, -1])
        colours = _colours(pixels[:, :: 2 * step, :: 2 * step], np.concatenate(border, axis=1))
        if edges.size:
            _add_edges(edges, green[:, ::step, ::step], index.domain_of[rows], index.labels[rows])
        yield _shapes(green), colours, green.max(axis=(1, 2))


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
    red, green, blue = np.moveaxis(small.reshape(len(small), -1, 3).astype(np.float32), 2, 0)
    gray, most = (red + green + blue) / 3, np.maximum(np.maximum(red, green), blue)
    saturation = most - np.minimum(np.minimum(red, green), blue)
    means = [each.mean(axis=1) for each in (gray, saturation, red - blue, border)]
    return np.stack([means[0], gray.std(axis=1), *means[1:], border.std(axis=1)], axis=1)


def _add_edges(
    edges: np.ndarray, gray: np.ndarray, domain_of: np.ndarray, labels: np.ndarray
) -> None:
    steps = np.zeros((len(gray), *edges.shape[3:]), dtype=np.float32)
    steps[:, 0, :, 1:] = np.diff(gray, axis=2)
    steps[:, 1, 1:] = np.diff(gray, axis=1)
    known = (labels >= 0) & (labels < edges.shape[2])
    for domain, label in np.unique(np.stack([domain_of, labels], axis=1)[known], axis=0).tolist():
        own = steps[(domain_of == domain) & (labels == label)]
        edges[:, domain, label] += own.sum(axis=0), np.square(own, out=own).sum(axis=0)


def _of_files(dataset: Dataset, index: Index) -> np.ndarray:
    """Read the sizes of images from the heads of their files: of some in each class of a domain."""
    found = np.full((len(index), 3), np.nan, dtype=np.float32)
    if not isinstance(dataset, FileDataset):
        return found
    positions = {name: place for place, name in enumerate(dataset.index().names)}
    cells = index.domain_of * (len(index.classes) + 2) + index.labels
    for cell in np.unique(cells):
        rows = np.flatnonzero(cells == cell)
        for row in rows[:: -(-len(rows) // _OPENED)].tolist():
            path = dataset.path(positions[index.names[row]])
            try:
                with Image.open(path) as image:
                    width, height = image.size
                found[row] = width, height, path.stat().st_size / (width * height)
            except (OSError, Image.DecompressionBombError):  # of another reader
                continue
    return found
