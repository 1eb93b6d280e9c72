"""Rare classes: a long tail cut from a balanced folder, and two ways to train on it.

Images lie in root/domain/class/*. The script lists them in a manifest whose training images fall
off geometrically from class to class, to a twentieth, in every domain in the same order; test
images stay as they are. Then it compares plain training with one in which every class counts the
same.
Without --root it runs on handwritten digits; --list only writes the manifest.

    python examples/long_tail.py
    python examples/long_tail.py --root PACS/images --list --manifest pacs_long_tail.csv
"""

import argparse
import csv
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

import unseen
from unseen.data.index import draw

FALL = 20  # times that the first class has the training images of the last one
TEST, VALIDATION = 0.3, 0.2  # of all images of a class, and of those that are left of the others


def long_tail(root: Path) -> Iterator[tuple[str, str, str, str]]:
    """Name, class, domain and split of every image that is used; the same on every machine."""
    images = sorted(p for p in root.glob("*/*/*") if p.is_file() and p.name[0] != ".")
    names = [image.relative_to(root).as_posix() for image in images]
    sizes = Counter(name.split("/")[1] for name in names)
    order = sorted(sizes, key=lambda each: (-sizes[each], each))  # frequent ones stay frequent
    share = {each: FALL ** (-rank / max(len(order) - 1, 1)) for rank, each in enumerate(order)}
    for domain in sorted({name.split("/")[0] for name in names}):
        own = {each: [n for n in names if n.startswith(f"{domain}/{each}/")] for each in order}
        tested = {each: [n for n in own[each] if draw(n, 0, "test\0") < TEST] for each in order}
        others = {each: sorted(set(own[each]) - set(tested[each]), key=_draw) for each in order}
        first = min(len(others[each]) / share[each] for each in order if others[each])
        for each in order:
            kept = others[each][: max(2, round(first * share[each]))]
            held_out = max(1, round(VALIDATION * len(kept)))  # one of the last class, too
            for place, name in enumerate(kept):
                yield name, each, domain, "validation" if place < held_out else "train"
            for name in tested[each]:
                yield name, each, domain, "test"


def _draw(name: str) -> float:
    return draw(name, 0, "long tail\0")


def write_manifest(root: Path, manifest: Path) -> Counter:
    """How many images of each class train, over all domains."""
    rows = list(long_tail(root))
    with manifest.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "class", "domain", "split"))
        for name, class_name, domain, split in rows:
            path = os.path.relpath(root / name, manifest.parent)
            writer.writerow((Path(path).as_posix(), class_name, domain, split))
    return Counter(class_name for _, class_name, _, split in rows if split == "train")


def make_folder(root: Path) -> None:
    """All 1,797 digits as PNG files, of three cameras: light, dark and turned."""
    pictures, labels = load_digits(return_X_y=True)
    for number, (pixels, label) in enumerate(zip(pictures, labels, strict=True)):
        camera = ("light", "dark", "turned")[number % 3]
        picture = pixels.reshape(8, 8) * (6 if camera == "dark" else 15)
        file = root / camera / str(label) / f"{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        made = Image.fromarray(picture.astype("uint8")).resize((32, 32))
        (made.rotate(20) if camera == "turned" else made).save(file)


def compare(manifest: Path, steps: int, runs: str) -> None:
    """Plain training, and one in which every class counts the same, on the same images."""
    settings = {
        "data": {"root": manifest},
        "network": {"name": "small_cnn", "pretrained": False, "image_size": 32},
        "steps": steps,
        "images_per_domain": 10,
        "evaluate_every": max(1, steps // 4),
    }
    rare = {"metric": "balanced", "sampling": "class_balanced"}
    for name, changes in (("plain", {}), ("every class counts the same", rare)):
        run = unseen.fit(
            "manifest/aggregate", runs=runs, **settings | changes | {"data.unseen_domain": "turned"}
        )
        print(name, run.measure("balanced"), "accuracy:", run.accuracy())


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--root", type=Path)
    arguments.add_argument("--manifest", type=Path, default=Path("long_tail.csv"))
    arguments.add_argument("--list", action="store_true", help="only write the manifest")
    arguments.add_argument("--steps", type=int, default=100)
    arguments.add_argument("--runs", default="example_runs")
    chosen = arguments.parse_args()
    root = chosen.root or Path("example_digits")
    if chosen.root is None and not root.exists():
        make_folder(root)
    print("training images:", dict(write_manifest(root, chosen.manifest)))
    if not chosen.list:
        compare(chosen.manifest, chosen.steps, chosen.runs)


if __name__ == "__main__":
    main()
