"""Held-out images where no official list exists."""

import hashlib
import unicodedata
from collections.abc import Iterable

import numpy as np

from unseen.data.index import Split


def held_out(
    names: Iterable[str], validation_share: float, test_share: float, seed: int
) -> np.ndarray:
    """The `Split` of each image (uint8), from its own name and the seed alone.

    Every image is drawn by itself, so adding a file moves no other one, and the shares hold in
    expectation within every class and domain. Changing one share leaves the other's images alone.
    """
    draws = np.array([_draw(name, seed) for name in names], dtype=np.float64)
    splits = np.full(len(draws), Split.TRAIN, dtype=np.uint8)
    splits[draws < validation_share] = Split.VALIDATION
    splits[draws >= 1 - test_share] = Split.TEST
    return splits


def _draw(name: str, seed: int) -> float:
    """A number in [0, 1). Accents count the same however the file system spells them."""
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    text = f"{seed}\0{name}".encode(errors="surrogateescape")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) / 2**53
