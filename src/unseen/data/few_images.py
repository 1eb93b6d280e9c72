"""What has to be said before a run whose classes or splits have few images."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from unseen.config import Experiment
from unseen.data.dataset import Index
from unseen.data.files import first_few
from unseen.data.roles import Roles

MOST_SKEWED = 10
"""Times that the largest class may have the training images of the smallest one, unremarked."""
FEWEST_TO_CHOOSE_BY = 50
"""Images of source validation."""


def remarks_on_images(
    index: Index, roles: Roles, experiment: Experiment, validation: int | None = None
) -> list[str]:
    """A sentence each. `validation` is how many images choose the checkpoint, where that is not to
    be counted from the roles."""
    number = sum(map(len, roles.validation.values())) if validation is None else validation
    return [
        *skewed_classes(index, roles, experiment),
        *_missing_classes(index, roles),
        *few_to_choose_by(number, experiment),
    ]


def skewed_classes(index: Index, roles: Roles, experiment: Experiment) -> Iterator[str]:
    """Over the training images of all training domains; what helps, unless it is set."""
    counts = np.bincount(np.concatenate(list(roles.labels.values())), minlength=len(index.classes))
    there = np.flatnonzero(counts)
    most, least = there[counts[there].argmax()], there[counts[there].argmin()]
    if counts[most] <= MOST_SKEWED * counts[least]:
        return
    text = (
        f"Classes are skewed: {counts[most]:,} training images of {index.classes[most]}, "
        f"{counts[least]:,} of {index.classes[least]}."
    )
    helps: list[str] = []
    if experiment.metric == "accuracy":
        helps.append("metric=balanced counts every class the same")
    if experiment.sampling != "class_balanced":
        helps.append("sampling=class_balanced trains on every class equally often")
    yield f"{text} To do justice to rare ones: {'; '.join(helps)}." if helps else text


def _missing_classes(index: Index, roles: Roles) -> Iterator[str]:
    """Nowhere, in a domain, or in the training part of a domain."""
    trained = {name: _names(index, labels) for name, labels in roles.labels.items()}
    known = set[str]().union(*trained.values())
    nowhere = [name for name in index.classes if name not in known]
    if nowhere:
        yield (
            f"No training domain has a training image of {first_few(nowhere)}: what has never been "
            "seen is never recognised."
        )
    there = {name: _names(index, index.labels[index.rows(name)]) for name in trained}
    absent = {name: known - names for name, names in there.items()}
    if any(absent.values()):
        yield f"Some training domains lack classes: {_listed(absent)}."
    held_out = {name: (there[name] & known) - names for name, names in trained.items()}
    if any(held_out.values()):
        yield (
            f"Some classes are only in the held-out images of a domain, none to train on: "
            f"{_listed(held_out)}; another data.split_seed, or smaller held-out shares, may help."
        )


def few_to_choose_by(number: int, experiment: Experiment) -> Iterator[str]:
    if experiment.selection == "source" and number < FEWEST_TO_CHOOSE_BY:
        images = "image is" if number == 1 else "images are"
        yield (
            f"{number} source validation {images} too few to choose a checkpoint by: set "
            "selection=last, and repeat the run with other splits (data.split_seed=1, 2, …) and "
            "seeds to see how far results differ."
        )


def _names(index: Index, labels: np.ndarray) -> set[str]:
    return {index.classes[label] for label in map(int, np.unique(labels))}


def _listed(by_domain: Mapping[str, Iterable[str]]) -> str:
    """`a: x, y; b: z`"""
    parts = [f"{name}: {first_few(sorted(own))}" for name, own in by_domain.items() if own]
    more = f"; … ({len(parts)} domains in all)" if len(parts) > 5 else ""
    return "; ".join(parts[:5]) + more
