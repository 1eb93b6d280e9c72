"""Files that are no images here, folders that are no domains, names that differ by a letter."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import combinations, islice
from pathlib import Path

import numpy as np

from unseen.audit.findings import Example, Finding
from unseen.data.dataset import Dataset, FileDataset
from unseen.data.datasets.folder import Folder
from unseen.data.images import PACKAGES, deep_range, is_hidden, reader_of_file
from unseen.data.index import Index
from unseen.errors import first_few

SPLIT_NAMES = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
_NEARLY_BLACK = 48
"""The brightest value of an image that shows nothing."""
_OPENED = 50
_ALIKE = 0.8
"""Share of letters that two names have in common, from which one may be a mistake."""


def ignored_files(dataset: Dataset, index: Index) -> Iterator[Finding]:
    """Count the files below a folder that were passed over, by ending, and say what reads them."""
    root = dataset.root
    if not isinstance(dataset, Folder) or root is None:
        return
    used, passed, packages = set(index.names), dict[str, str](), Counter[str]()
    for base, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for file in sorted(files) if Path(base) != root else ():
            name = Path(base, file).relative_to(root).as_posix()
            if name not in used and not file.startswith("."):
                passed[name] = Path(file).suffix.lower() or "without an ending"
                packages[PACKAGES.get(reader_of_file(base, file) or "", "")] += 1
    if passed:
        by_ending = [f"{n:,} {ending}" for ending, n in Counter(passed.values()).most_common()]
        text = f"{len(passed):,} files were passed over: {first_few(by_ending, 8)}."
        known = [f" `pip install {p}` reads {n:,} of them." for p, n in packages.items() if p]
        examples = tuple(Example(name) for name in passed)
        yield Finding("ignored files", len(passed), text + "".join(known), examples)


def odd_layout(dataset: Dataset, index: Index) -> Iterator[Finding]:
    """Tell of domains that look like splits, of a folder level too many, of a single class."""
    if all(name.lower() in SPLIT_NAMES for name in index.domains):
        text = (
            f"The domains are named {', '.join(index.domains)}: these are splits of one dataset, "
            "and a model that leaves one out is tested on nothing new. Make a folder for each "
            "place, device or time, or list the images in a manifest with columns domain and split."
        )
        yield Finding("splits for domains", len(index.domains), text)
    below = _folders_below(index) if isinstance(dataset, Folder) else {}
    shared = Counter(name for names in below.values() for name in names)
    again = sorted(name for name, number in shared.items() if number > 1 or len(below) == 1)
    if 2 * len(again) > len(shared):
        text = (
            f"Below the class folders {first_few(sorted(below))} lie the folders "
            f"{first_few(again)}: there may be one level too many. If so, take it out, or "
            f"set data.root to the folder that holds the domains, such as {dataset.root}/"
            f"{index.domains[0]}."
        )
        yield Finding("a folder level too many", len(again), text)
    if len(index.classes) == 1:
        text = f"All images are {index.classes[0]}: nothing can be learned from a single class."
        yield Finding("a single class", 1, text)


def _folders_below(index: Index) -> dict[str, set[str]]:
    """Return the folders in each class folder, where nearly all images lie in one."""
    below: defaultdict[str, set[str]] = defaultdict(set)
    deep = [parts for name in index.names if len(parts := name.split("/")) > 3]
    for parts in deep if len(deep) > 0.9 * len(index) else ():
        below[parts[1]].add(parts[2])
    return below


def similar_classes(index: Index) -> Iterator[Finding]:
    """Tell of class names that differ by case or spelling and that no domain has both of."""
    counts = index.count_classes()
    homes = {c: {d for d in index.domains if counts[d][c]} for c in index.classes}
    pairs = [
        sorted(pair, key=lambda name: (len(homes[name]), name))
        for pair in combinations(index.classes, 2)
        if all(homes[name] for name in pair)
        and not homes[pair[0]] & homes[pair[1]]
        and _alike(*pair)
    ]
    if pairs:
        where = [[f"{c} ({', '.join(sorted(homes[c]))})" for c in pair] for pair in pairs]
        listed = "; ".join(" and ".join(pair) for pair in where)
        renamed = ", ".join(f"{rare}: {usual}" for rare, usual in pairs)
        text = (
            "Names of classes that differ by case or spelling, and that no domain has both of: "
            f"{listed}. If they mean the same: 'data.classes={{{renamed}}}'."
        )
        yield Finding("similar class names", len(pairs), text)


def _alike(*names: str) -> bool:
    one, other = (
        re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", name)).casefold() for name in names
    )
    spelled = not re.search(r"\d", one + other) and SequenceMatcher(None, one, other).ratio()
    return one == other or spelled >= _ALIKE


def nearly_black(dataset: Dataset, index: Index, brightest: np.ndarray) -> Iterator[Finding]:
    """Tell of images of more than 8 bits whose values use a small part of their type's range."""
    dark = np.flatnonzero(brightest < _NEARLY_BLACK).tolist()
    if not isinstance(dataset, FileDataset):
        return
    place = {name: position for position, name in enumerate(dataset.index().names)}
    opened = (deep_range(dataset.path(place[index.names[row]])) for row in islice(dark, _OPENED))
    highest = max((found[1] for found in opened if found is not None), default=0)
    if highest > 0:
        white = 2 ** int(np.ceil(np.log2(highest + 1))) - 1
        text = (
            f"{len(dark):,} images are nearly black: their files have 16 bits, and values only up "
            f"to {highest:,.0f}. Say which values are black and white: data.window=0,{white}."
        )
        examples = tuple(Example(index.names[row], (row,)) for row in dark)
        yield Finding("nearly black", len(dark), text, examples)
