"""Digits from four sources in folders, to try `unseen auto` where nothing was tuned.

Writes root/source/digit/*.png: 600 images each of MNIST, MNIST-M, USPS and of the digits that
come with scikit-learn. MNIST and MNIST-M get different digits of MNIST: none is in both.

    python docs/generators/four_digit_sources.py --data DIR four_digits
    unseen auto four_digits

DIR holds MNIST/, USPS/ and BSDS500/ as `unseen train digits_5` wants them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from unseen.data.dataset import open_dataset
from unseen.settings.recipes import build_experiment, merge, read_recipe

IMAGES = 600  # of each source: about as many as the hospitals of a small study have


def sources(data: Path) -> Iterator[tuple[str, str, Image.Image]]:
    """Source, digit and image, the same ones on every machine."""
    digits = load_digits()
    for image, label in zip(digits.images[:IMAGES], digits.target[:IMAGES], strict=True):
        yield "sklearn", str(label), Image.fromarray((image / 16 * 255).astype(np.uint8))
    wanted = {"data": {"root": str(data), "domains": "mnist,mnist_m,usps"}}
    experiment = build_experiment(merge(read_recipe("digits_5/aggregate"), wanted))
    dataset = open_dataset(experiment.data)
    index = dataset.index()
    parts = {"mnist": "train", "mnist_m": "test", "usps": "train"}
    for source, part in parts.items():
        rows = [row for row in index.rows(source) if f"/{part}/" in index.names[row]]
        for row in np.random.default_rng(0).permutation(rows)[:IMAGES]:
            yield source, index.classes[index.labels[row]], dataset.read(int(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    chosen = parser.parse_args()
    for number, (source, digit, image) in enumerate(sources(chosen.data)):
        folder = chosen.root / source / digit
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:05d}.png")


if __name__ == "__main__":
    main()
