"""The audit of a dataset: everything that is wrong with it, or should be looked at."""

from collections.abc import Iterator

import numpy as np

from unseen.audit.copies import copies_found, find_copies, groups_with_copies
from unseen.audit.files import ignored_files, nearly_black, odd_layout, similar_classes
from unseen.audit.findings import AuditReport, Finding
from unseen.audit.labels import wrong_labels
from unseen.audit.measure import measure
from unseen.audit.pictures import classes_given_away, domains_that_are_two
from unseen.data.dataset import Dataset
from unseen.data.datasets.folder import Folder
from unseen.data.prepare import PreparedImages


def audit(
    dataset: Dataset, prepared: PreparedImages, features: np.ndarray | None = None
) -> AuditReport:
    """Look at the files, the folders and the prepared images of a dataset.

    `features` has a row for each prepared image: `[images, width]`, or maps as stored features are.
    With features, labels are checked, too.
    """
    index, measured = prepared.index, measure(dataset, prepared)
    pairs = find_copies(measured.shapes, prepared.size)
    groups = groups_with_copies(index, pairs)
    if features is not None and features.ndim > 2:
        features = _pooled(features)
    steps: dict[str, Iterator[Finding]] = {
        "files": ignored_files(dataset, index),
        "folders": odd_layout(dataset, index),
        "class names": similar_classes(index),
        "brightness": nearly_black(dataset, index, measured.brightest),
        "copies": copies_found(index, pairs),
        "what gives a class away": classes_given_away(index, measured, prepared.size),
        "domains": domains_that_are_two(index, measured.statistics, features),
    }
    if features is not None:
        steps["labels"] = wrong_labels(index, features, groups)
    findings = tuple(finding for step in steps.values() for finding in step)
    name = dataset.config.name
    if isinstance(dataset, Folder) and dataset.root is not None:
        name = dataset.root.stem
    return AuditReport(name, index.names, findings, groups, tuple(steps))


def _pooled(maps: np.ndarray) -> np.ndarray:
    """Turn maps with channels last, or tokens, into the maxima of channels, their means, and those
    of the four quarters of a map."""
    places = tuple(range(1, maps.ndim - 1))
    parts = [maps.max(axis=places), maps.mean(axis=places)]
    if maps.ndim == 4:
        halves = [np.array_split(each, 2, axis=2) for each in np.array_split(maps, 2, axis=1)]
        parts += [quarter.mean(axis=(1, 2)) for half in halves for quarter in half]
    return np.concatenate(parts, axis=1)
