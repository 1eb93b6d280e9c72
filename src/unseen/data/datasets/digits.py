"""scikit-learn's bundled handwritten digits in four styles: a benchmark that needs no download."""

import colorsys
import hashlib
from functools import cache
from typing import ClassVar, cast

import numpy as np
from PIL import Image

from unseen.data.dataset import Part, PartsDataset
from unseen.data.index import Index

DOMAINS = ("plain", "blended", "coloured", "outlines")
SIZE = 32
MARGIN = 2


class Digits(PartsDataset):
    """Each of the 1,797 digits appears in exactly one style, so no digit is in two domains."""

    needs_root: ClassVar[bool] = False

    def parts(self) -> list[Part]:
        labels, _, pictures = _digits()
        classes = [str(label) for label in labels]
        state = hashlib.blake2b(pictures.tobytes(), digest_size=8).hexdigest()
        return [Part("digits", "", None, classes, state, pictures.__getitem__)]

    def build_index(self) -> Index:
        labels, domain_of = (values.copy() for values in _digits()[:2])
        names = tuple(
            f"{DOMAINS[domain]}/{label}/{number:04d}"
            for number, (domain, label) in enumerate(zip(domain_of, labels, strict=True))
        )
        classes = tuple(str(digit) for digit in range(10))
        return Index(classes, DOMAINS, names, labels, domain_of, self.draw_splits(names))


@cache
def _digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make labels, domains and pictures once in a process: they are always the same. The digits of
    each class go in turn to the four domains."""
    from sklearn.datasets import load_digits  # pyright: ignore[reportMissingTypeStubs]

    bunch = cast(dict[str, np.ndarray], load_digits())
    labels = bunch["target"].astype(np.int64)
    domain_of = np.empty_like(labels)
    for label in np.unique(labels):
        positions = np.flatnonzero(labels == label)
        domain_of[positions] = np.arange(len(positions)) % len(DOMAINS)
    return labels, domain_of, _render(bunch["images"], domain_of)


def _render(drawings: np.ndarray, domain_of: np.ndarray) -> np.ndarray:
    """Paint uint8 [N, 32, 32, 3]; the random parts depend on the digit's number alone."""
    from sklearn.datasets import load_sample_images  # pyright: ignore[reportMissingTypeStubs]

    photographs = cast(dict[str, list[np.ndarray]], load_sample_images())["images"]
    images = np.empty((len(drawings), SIZE, SIZE, 3), dtype=np.uint8)
    for number, (drawing, domain) in enumerate(zip(drawings, domain_of, strict=True)):
        ink = _enlarge(drawing)
        random = np.random.default_rng([1797, number])
        if DOMAINS[domain] == "plain":
            picture = 255 * ink
        elif DOMAINS[domain] == "blended":
            picture = np.abs(_patch(photographs, random) - 255 * ink)
        elif DOMAINS[domain] == "coloured":
            picture = _coloured(ink, random)
        else:  # black where the stroke begins or ends (ink of one half), white elsewhere
            picture = 255 * (1 - 4 * ink * (1 - ink))
        images[number] = np.rint(picture.clip(0, 255))
    return images


def _enlarge(drawing: np.ndarray) -> np.ndarray:
    """Turn 8 x 8 strengths of 0..16 into a smooth stroke of 0..1, [32, 32, 1]."""
    small = Image.fromarray((drawing / 16).astype(np.float32))
    side = SIZE - 2 * MARGIN
    smooth = small.resize((side, side), Image.Resampling.BICUBIC)
    strength = np.asarray(smooth, dtype=np.float64).clip(0, 1)
    stroke = np.tanh(5 * (strength - 0.45))
    lowest, highest = np.tanh(5 * np.array([-0.45, 0.55]))
    return np.pad((stroke - lowest) / (highest - lowest), MARGIN)[..., None]


def _patch(photographs: list[np.ndarray], random: np.random.Generator) -> np.ndarray:
    photograph = photographs[int(random.integers(len(photographs)))]
    top, left = (int(random.integers(int(side) - SIZE + 1)) for side in photograph.shape[:2])
    return photograph[top : top + SIZE, left : left + SIZE].astype(np.float64)


def _coloured(ink: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Paint a dark digit of one hue on a bright ground of another."""
    hue = random.random()
    other = hue + random.uniform(0.3, 0.7)
    ground = colorsys.hsv_to_rgb(hue, random.uniform(0.35, 0.8), random.uniform(0.85, 1))
    colour = colorsys.hsv_to_rgb(other % 1, random.uniform(0.7, 1), random.uniform(0.15, 0.45))
    return 255 * (ink * np.array(colour) + (1 - ink) * np.array(ground))
