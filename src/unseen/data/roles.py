"""Which images train, choose and measure, and warnings where classes or splits have few."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

import numpy as np

from unseen.data.index import Index, Split, draw
from unseen.errors import DataError, SettingsError, first_few, unknown_name
from unseen.settings.experiment import DataSettings, Experiment


class Roles(NamedTuple):
    """Positions in the index, by domain name. `validation` and `in_domain` hold nothing of an
    unseen domain, and `train` only where the settings ask for an upper bound."""

    training_domains: tuple[str, ...]
    """Those of `train`; in an upper bound the unseen ones are among them, at the end."""
    unseen_domains: tuple[str, ...]
    train: dict[str, np.ndarray]
    validation: dict[str, np.ndarray]
    in_domain: dict[str, np.ndarray]
    """Held-out images of the training domains: TEST rows, or VALIDATION rows where none are."""
    out_of_domain: dict[str, np.ndarray]
    """Images of the unseen domains; in adaptation, and in an upper bound, those that training does
    not look at. Nothing where a target has no labels."""
    target: dict[str, np.ndarray]
    """In adaptation: images of the unseen domains that training sees, without their labels."""
    labels: dict[str, np.ndarray]
    """Classes of the images in `train`."""

    @property
    def target_rows(self) -> np.ndarray:
        """The rows of all target domains together."""
        return np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *self.target.values()]))


def choose_roles(
    index: Index,
    settings: DataSettings,
    setting: Literal["generalization", "adaptation"] = "generalization",
) -> Roles:
    """Share out the images as the settings ask; names are checked against the dataset's."""
    training, unseen = _choose_domains(index, settings)
    leaks = _leaks(index, unseen, settings)
    train = {d: rows[~leaks[rows]] for d in training for rows in [_share_of(index, d, settings)]}
    if empty := [domain for domain, positions in train.items() if len(positions) == 0]:
        raise DataError(
            f"no training images in {', '.join(empty)}; leave it out of data.training_domains"
        )
    held_out = {domain: index.rows(domain, Split.VALIDATION) for domain in training}
    validation = {domain: rows[~leaks[rows]] for domain, rows in held_out.items()}
    if not any(len(positions) for positions in validation.values()):
        raise SettingsError(
            f"no validation images in {', '.join(training)}: data.validation_share="
            f"{settings.validation_share:g} leaves none; raise it"
        )
    tested = {domain: index.rows(domain, Split.TEST) for domain in training}
    in_domain = {d: rows if len(rows) else validation[d] for d, rows in tested.items()}
    target: dict[str, np.ndarray] = {}
    out_of_domain: dict[str, np.ndarray] = {}
    for domain in unseen:
        if setting == "adaptation" or settings.train_on_unseen:
            target[domain], measured = _target_rows(index, domain, settings)
            out_of_domain |= {domain: measured} if len(measured) else {}
        else:
            out_of_domain[domain] = _unseen_rows(index, domain)
    if settings.train_on_unseen:
        train, target = train | target, {}
    labels = {domain: index.labels[rows] for domain, rows in train.items()}
    return Roles(tuple(train), unseen, train, validation, in_domain, out_of_domain, target, labels)


def _leaks(index: Index, unseen: tuple[str, ...], settings: DataSettings) -> np.ndarray:
    """Say of each image whether it neither trains nor chooses, because others of its group are in
    an unseen domain."""
    if not index.groups or settings.train_on_unseen:
        return np.zeros(len(index), dtype=bool)
    _, group = np.unique(index.groups, return_inverse=True)
    there = np.isin(index.domain_of, [index.domains.index(domain) for domain in unseen])
    return np.isin(group, group[there])


def _choose_domains(
    index: Index, settings: DataSettings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose both in the order of the index, whatever the order in the settings."""
    problems = [
        f"data.{key}: {unknown_name('domain', name, index.domains)}"
        for key in ("training_domains", "unseen_domain")
        for name in getattr(settings, key)
        if name not in index.domains
    ]
    unseen = tuple(domain for domain in index.domains if domain in settings.unseen_domain)
    wanted = settings.training_domains or set(index.labelled_domains).difference(unseen)
    training = tuple(domain for domain in index.domains if domain in wanted)
    unlabelled = ", ".join(domain for domain in training if domain not in index.labelled_domains)
    if problems:
        raise SettingsError("\n".join(problems))
    if not training:
        raise SettingsError(
            f"data.unseen_domain={','.join(unseen)} leaves no domain to train on "
            f"(known: {', '.join(index.domains)})"
        )
    if unlabelled:
        problem = f"no labels to train with in {unlabelled}"
        raise SettingsError(f"{problem}; leave it out of data.training_domains")
    if settings.train_on_unseen and not unseen:
        raise SettingsError(
            "data.train_on_unseen trains on labels of the unseen domain, and there is none; set "
            "data.unseen_domain"
        )
    return training, unseen


def _share_of(index: Index, domain: str, settings: DataSettings) -> np.ndarray:
    """Choose a domain's training images: all, or `data.share` of each class, and at least one.

    Every image has a draw of its own, and a class takes its images in the order of their draws.
    """
    rows = index.rows(domain, Split.TRAIN)
    if settings.share == 1:
        return rows
    draws = [draw(index.names[row], settings.split_seed, "share\0") for row in map(int, rows)]
    in_order = rows[np.argsort(np.array(draws), kind="stable")]
    chosen: list[np.ndarray] = []
    for label in np.unique(index.labels[rows]):
        of_class = in_order[index.labels[in_order] == label]
        chosen.append(of_class[: max(1, math.floor(settings.share * len(of_class) + 0.5))])
    return np.sort(np.concatenate([rows[:0], *chosen]))


def _unseen_rows(index: Index, domain: str) -> np.ndarray:
    """Choose the rows made for this purpose, else the published test list, else all of them."""
    everything = index.rows(domain)
    if len(everything) == 0:
        raise DataError(f"no images in the unseen domain {domain}")
    if domain not in index.labelled_domains:
        raise DataError(
            f"the unseen domain {domain} has no labels to measure with; leave it out, adapt to it "
            "with setting=adaptation, or ask 'unseen forecast' how well a model will do there"
        )
    tested = index.rows(domain, Split.TEST) if index.official_test else everything[:0]
    choices = (index.rows(domain, Split.UNSEEN), tested, everything)
    return next(rows for rows in choices if len(rows))


def _target_rows(
    index: Index, domain: str, settings: DataSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Choose a target's training images, and its others: a published test list, else all held out.

    Its validation images may measure, too: nothing is ever chosen on them. A target without labels
    measures nothing, so training looks at all of it.
    """
    labelled = settings.train_on_unseen
    if domain not in index.labelled_domains:
        if labelled:
            raise DataError(f"data.train_on_unseen needs labels, and {domain} has none")
        return index.rows(domain), index.rows(domain)[:0]
    train = _share_of(index, domain, settings) if labelled else index.rows(domain, Split.TRAIN)
    tested = index.rows(domain, Split.TEST)
    if not (index.official_test and len(tested)):
        tested = np.sort(np.concatenate([tested, index.rows(domain, Split.VALIDATION)]))
    if not (len(train) and len(tested)):
        asked = "data.train_on_unseen" if labelled else "setting=adaptation"
        purpose = "measure on" if len(train) else "look at"
        raise DataError(
            f"the target domain {domain} has no images to {purpose}; {asked} needs training "
            "images and others (data.validation_share, data.test_share)"
        )
    return train, tested


MOST_SKEWED = 10
"""Times that the largest class may have the training images of the smallest one without warning."""
FEWEST_TO_CHOOSE_BY = 50
"""Source validation images, below which there is a warning."""


def warnings_about_images(
    index: Index, roles: Roles, experiment: Experiment, validation: int | None = None
) -> list[str]:
    """Return a sentence for everything that is amiss. `validation` is how many images choose the
    checkpoint, where that is not to be counted from the roles."""
    leaks = _leaks(index, roles.unseen_domains, experiment.data)
    leaks &= np.isin(index.splits, [Split.TRAIN, Split.VALIDATION])
    left_out = sum(int(leaks[index.rows(domain)].sum()) for domain in roles.training_domains)
    groups = (
        f"{left_out:,} images of the training domains are left out: others of their groups "
        "(data.group) are in the unseen domain."
    )
    number = sum(map(len, roles.validation.values())) if validation is None else validation
    return [
        *([groups] if left_out else []),
        *warnings_about_skew(index, roles, experiment),
        *_warnings_about_missing_classes(index, roles),
        *warnings_about_validation(number, experiment),
    ]


def warnings_about_skew(index: Index, roles: Roles, experiment: Experiment) -> Iterator[str]:
    """Warn of skewed classes in all training domains together; name what helps and is not set."""
    counts = np.bincount(np.concatenate(list(roles.labels.values())), minlength=len(index.classes))
    there = np.flatnonzero(counts)
    most, least = there[counts[there].argmax()], there[counts[there].argmin()]
    if counts[most] <= MOST_SKEWED * counts[least]:
        return
    helps: list[str] = []
    if experiment.metric == "accuracy":
        helps.append("metric=balanced counts every class the same")
    if experiment.sampling != "class_balanced":
        helps.append("sampling=class_balanced trains on every class equally often")
    advice = f" To do justice to rare ones: {'; '.join(helps)}." if helps else ""
    yield (
        f"Classes are skewed: {counts[most]:,} training images of {index.classes[most]}, "
        f"{counts[least]:,} of {index.classes[least]}.{advice}"
    )


def _warnings_about_missing_classes(index: Index, roles: Roles) -> Iterator[str]:
    """Warn of classes missing everywhere, in a domain, or in the training part of a domain."""

    def names(labels: np.ndarray) -> set[str]:
        return {index.classes[label] for label in map(int, np.unique(labels))}

    trained = {domain: names(labels) for domain, labels in roles.labels.items()}
    known = set[str]().union(*trained.values())
    index = index.with_classes(index.classes_in(roles.training_domains))
    measured = [index.labels[rows] for rows in roles.out_of_domain.values()]
    if number := sum(int((labels == len(index.classes)).sum()) for labels in measured):
        yield (
            f"{number:,} images of the unseen domain are of classes that no training domain has: "
            f"{first_few(index.other_classes)}. The model does not know them, and each of these "
            "images counts as wrong."
        )
    if nowhere := [name for name in index.classes if name not in known]:
        yield (
            f"No training domain has a training image of {first_few(nowhere)}: what has never been "
            "seen is never recognised."
        )
    there = {domain: names(index.labels[index.rows(domain)]) for domain in trained}
    if absent := _by_domain({domain: known - classes for domain, classes in there.items()}):
        yield f"Some training domains lack classes: {absent}."
    if held_out := _by_domain({d: (there[d] & known) - seen for d, seen in trained.items()}):
        yield (
            "Some classes are only in the validation and test images of a domain, none to train "
            f"on: {held_out}; another data.split_seed, or smaller shares of them, may help."
        )


def warnings_about_validation(number: int, experiment: Experiment) -> Iterator[str]:
    """Warn of too few validation images, where they choose the checkpoint."""
    if experiment.selection == "source" and number < FEWEST_TO_CHOOSE_BY:
        yield (
            f"{number} validation images are too few to choose a checkpoint by: set "
            "selection=last, and repeat the run with other splits (data.split_seed=1, 2, …) and "
            "seeds to see how far results differ."
        )


def _by_domain(classes: Mapping[str, Collection[str]]) -> str:
    """Write `a: x, y; b: z`, without domains that have none."""
    parts = [f"{name}: {first_few(sorted(some))}" for name, some in classes.items() if some]
    more = f"; … ({len(parts)} domains in all)" if len(parts) > 5 else ""
    return "; ".join(parts[:5]) + more
