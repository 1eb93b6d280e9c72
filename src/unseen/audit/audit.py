"""The audit of a dataset: everything that is wrong with it, or should be looked at."""

from collections.abc import Iterator

import numpy as np
from scipy.special import softmax

from unseen.audit import files, pictures
from unseen.audit.copies import copies_found, find_copies, groups_with_copies
from unseen.audit.findings import AuditReport, Example, Finding
from unseen.data.dataset import Dataset
from unseen.data.datasets.folder import Folder
from unseen.data.index import Index
from unseen.data.prepare import PreparedImages
from unseen.results.statistics import fit_temperature

UNLIKELY = 0.05
"""Calibrated probability of an image's own label below which it is probably wrong."""
HARDLY_EVER = 0.1
"""Share of a class that is recognised, at or below which it is not recalled."""
_FOLDS, _FEWEST, _COMPONENTS = 5, 10, 256


def audit(
    dataset: Dataset, prepared: PreparedImages, features: np.ndarray | None = None
) -> AuditReport:
    """Look at the files, the folders and the prepared images of a dataset.

    `features` has a row for each prepared image: `[images, width]`, or maps as stored features are.
    With features, labels are checked, too.
    """
    index, measured = prepared.index, pictures.measure(dataset, prepared)
    pairs = find_copies(measured["shapes"], prepared.size)
    groups = groups_with_copies(index, pairs)
    if features is not None and features.ndim > 2:
        features = _pooled(features)
    steps: dict[str, Iterator[Finding]] = {
        "files": files.ignored_files(dataset, index),
        "folders": files.odd_layout(dataset, index),
        "class names": files.similar_classes(index),
        "brightness": files.nearly_black(dataset, index, measured["brightest"]),
        "copies": copies_found(index, pairs),
        "what gives a class away": pictures.classes_given_away(index, measured, prepared.size),
        "domains": pictures.domains_that_are_two(index, measured["statistics"], features),
    }
    if features is not None:
        steps["labels"] = wrong_labels(index, features, groups)
    findings = tuple(finding for step in steps.values() for finding in step)
    own = isinstance(dataset, Folder) and dataset.root is not None
    name = dataset.root.stem if own and dataset.root else dataset.config.name
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


def wrong_labels(index: Index, features: np.ndarray, groups: tuple[str, ...]) -> Iterator[Finding]:
    """Tell of labels that are probably wrong, and of classes that no model recalls, by predictions
    for images that a model has not seen."""
    numbers, counts = np.unique(index.labels, return_counts=True)
    common = numbers[(counts >= _FEWEST) & (numbers >= 0) & (numbers < len(index.classes))]
    rows = np.flatnonzero(np.isin(index.labels, common))
    if len(common) < 2:
        return
    labels = np.searchsorted(common, index.labels[rows])
    _, group = np.unique(np.array(groups)[rows], return_inverse=True)
    likely = _probabilities(features[rows], labels, index.domain_of[rows], group)
    called, own = likely.argmax(axis=1), likely[np.arange(len(rows)), labels]
    names = [index.classes[label] for label in common]
    wrong = np.flatnonzero((own < UNLIKELY) & (called != labels))
    found = tuple(
        Example(f"{names[labels[place]]}, or {names[called[place]]}?", (int(rows[place]),))
        for place in wrong[np.argsort(own[wrong], kind="stable")]
    )
    if found:
        text = (
            f"{len(found):,} labels are probably wrong: a model trained on the other images gives "
            f"them less than {UNLIKELY:.0%}, and names another class. Look at them, the most "
            "certain first; some are only unusual."
        )
        yield Finding("probably wrong labels", len(found), text, found)
    recall = [float((called == label)[labels == label].mean()) for label in range(len(common))]
    never = [f"{c} ({r:.0%})" for c, r in zip(names, recall, strict=True) if r <= HARDLY_EVER]
    if never:
        text = (
            "A model trained on the other images hardly ever recognises these classes: "
            f"{', '.join(never)}. They look like others, or labels are mixed up: join them with "
            "data.classes, or collect more images."
        )
        yield Finding("classes that are not recalled", len(never), text)


def _probabilities(
    features: np.ndarray, labels: np.ndarray, domain_of: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Return `[images, classes]` from logistic regressions on other images, calibrated. Features
    are standardised within each domain; copies are in one fold: none is predicted from its twin."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold

    values = features.astype(np.float32)
    for own in (domain_of == domain for domain in np.unique(domain_of)):
        values[own] = (values[own] - values[own].mean(axis=0)) / (values[own].std(axis=0) + 1e-2)
    values = PCA(min(_COMPONENTS, *values.shape), random_state=0).fit_transform(values)
    values /= values.std() or 1.0
    scores = np.zeros((len(labels), labels.max() + 1))
    folds = StratifiedGroupKFold(_FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(values, domain_of * len(scores[0]) + labels, group):
        model = LogisticRegression(C=0.01, max_iter=300, tol=1e-3).fit(values[train], labels[train])
        scores[np.ix_(test, model.classes_)] = model.predict_log_proba(values[test])
    return softmax(scores / (fit_temperature([scores], [labels]) or 1.0), axis=1)
