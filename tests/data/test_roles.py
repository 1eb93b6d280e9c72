"""Which images train, choose and measure, and what is said where there are few of them."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from unseen.data.datasets.digits import Digits
from unseen.data.index import UNLABELLED, Index, LabelledImage, Split
from unseen.data.roles import Roles, choose_roles, warnings_about_images
from unseen.errors import DataError, SettingsError
from unseen.settings.experiment import DataSettings, Experiment
from unseen.settings.recipes import load_experiment

T, V, E, U = Split.TRAIN, Split.VALIDATION, Split.TEST, Split.UNSEEN
ROWS = [(0, T), (0, V), (0, E), (1, T), (1, V), (1, T), (2, T), (2, V), (2, E)]


def index(rows: list[tuple[int, Split]], unlabelled: int | None = None, **others: Any) -> Index:
    """Images of the domains a, b, c; (domain, split) each."""
    numbers, splits = zip(*rows, strict=True)
    names = tuple(str(number) for number in range(len(rows)))
    domain_of = np.array(numbers, dtype=np.int64)
    labels = np.where(domain_of == unlabelled, UNLABELLED, 0)
    given = np.array(splits, dtype=np.uint8)
    return Index(("x", "y"), ("a", "b", "c"), names, labels, domain_of, given, **others)


def roles_of(images: Index, setting: Any = "generalization", **values: object) -> Roles:
    settings = DataSettings.model_validate({"name": "digits", **values})
    return choose_roles(images, settings, setting)


def lists(positions: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {domain: rows.tolist() for domain, rows in positions.items()}


PLAIN, OFFICIAL = index(ROWS), index(ROWS, official_test=True)
UNLABELLED_C = index(ROWS, unlabelled=2)
MORE = index([*ROWS, (0, T)])
UNSEEN_TOO = index([*ROWS, (2, U), (0, U)], official_test=True)
TWINS = ("0", "1", "2", "3", "4", "5", "0", "4", "2", "9")
GROUPED = index([*ROWS[:5], (1, V), *ROWS[6:], (0, T)], groups=TWINS)
"""Images 0 and 6, and 4 and 7, are twins; with c unseen, 0 and 4 would give answers away."""
TRAINED = {"a": [0], "b": [3, 5]}


@pytest.mark.parametrize(
    ("images", "values", "expected"),
    [
        (
            PLAIN,
            {"unseen_domain": "c"},
            {
                "train": TRAINED,
                "validation": {"a": [1], "b": [4]},
                "in_domain": {"a": [2], "b": [4]},
                "out_of_domain": {"c": [6, 7, 8]},
                "target": {},
            },
        ),
        (OFFICIAL, {"unseen_domain": "c"}, {"out_of_domain": {"c": [8]}}),
        (OFFICIAL, {"unseen_domain": "b"}, {"out_of_domain": {"b": [3, 4, 5]}}),
        (
            UNSEEN_TOO,
            {"unseen_domain": "c"},
            {
                "train": TRAINED,
                "validation": {"a": [1], "b": [4]},
                "in_domain": {"a": [2], "b": [4]},
                "out_of_domain": {"c": [9]},
            },
        ),
        (
            PLAIN,
            {"training_domains": "b", "unseen_domain": ["c", "a"]},
            {"train": {"b": [3, 5]}, "out_of_domain": {"a": [0, 1, 2], "c": [6, 7, 8]}},
        ),
        (PLAIN, {}, {"train": TRAINED | {"c": [6]}, "out_of_domain": {}}),
        (UNLABELLED_C, {}, {"train": TRAINED, "out_of_domain": {}}),
        (
            GROUPED,
            {"unseen_domain": "c"},
            {
                "train": {"a": [9], "b": [3]},
                "validation": {"a": [1], "b": [5]},
                "in_domain": {"a": [2], "b": [5]},
                "out_of_domain": {"c": [6, 7, 8]},
            },
        ),
        (GROUPED, {}, {"train": {"a": [0, 9], "b": [3], "c": [6]}}),
    ],
)
def test_who_trains_chooses_and_measures(
    images: Index, values: dict[str, Any], expected: dict[str, Any]
) -> None:
    roles = roles_of(images, **values)
    assert {role: lists(getattr(roles, role)) for role in expected} == expected
    assert roles.training_domains == tuple(roles.train)
    assert roles.unseen_domains == tuple(roles.out_of_domain)


@pytest.mark.parametrize(
    ("images", "unseen", "train", "target", "measured"),
    [
        (PLAIN, "c", TRAINED, {"c": [6]}, {"c": [7, 8]}),
        (OFFICIAL, "c", TRAINED, {"c": [6]}, {"c": [8]}),
        (UNLABELLED_C, "c", TRAINED, {"c": [6, 7, 8]}, {}),
        (
            index([*ROWS, (1, E)]),
            *("c,b", {"a": [0]}, {"b": [3, 5], "c": [6]}, {"b": [4, 9], "c": [7, 8]}),
        ),
    ],
)
def test_in_adaptation_targets_are_looked_at_and_measured_on_other_images(
    images: Index, unseen: str, train: Any, target: Any, measured: Any
) -> None:
    """Several are looked at together and measured apart."""
    roles = roles_of(images, "adaptation", unseen_domain=unseen)
    found = [lists(role) for role in (roles.train, roles.target, roles.out_of_domain)]
    assert found == [train, target, measured]
    assert roles.target_rows.tolist() == sorted(n for rows in target.values() for n in rows)


def test_an_upper_bound_trains_on_the_unseen_domain_and_on_no_image_that_measures() -> None:
    chosen = {"unseen_domain": "a", "train_on_unseen": True}
    roles = roles_of(MORE, **chosen)
    assert roles.training_domains == ("b", "c", "a")  # the unseen one last
    assert roles.unseen_domains == ("a",)
    assert lists(roles.train) == {"b": [3, 5], "c": [6], "a": [0, 9]}
    assert lists(roles.out_of_domain) == {"a": [1, 2]}
    assert lists(roles.validation) == {"b": [4], "c": [7]}  # nothing of it chooses
    assert lists(roles.in_domain) == {"b": [4], "c": [8]}
    assert roles.target == {}
    assert lists(roles_of(OFFICIAL, **chosen).out_of_domain) == {"a": [2]}
    smaller = roles_of(MORE, share=0.5, **chosen)
    assert (len(smaller.train["a"]), lists(smaller.out_of_domain)) == (1, {"a": [1, 2]})
    grouped = roles_of(GROUPED, unseen_domain="c", train_on_unseen=True)
    assert lists(grouped.train) == {"a": [0, 9], "b": [3], "c": [6]}


FEW = [(0, T), (0, V), (1, T)]
UPPER = {"unseen_domain": "c", "train_on_unseen": True}
ADAPT = {"unseen_domain": "c", "setting": "adaptation"}
NAMES = {"training_domains": "aa", "unseen_domain": "d"}
UNKNOWN = (
    r"data\.training_domains: unknown domain 'aa'; did you mean 'a'\? \(known: a, b, c\)"
    r"\ndata\.unseen_domain: unknown domain 'd' \(known: a, b, c\)"
)


@pytest.mark.parametrize(
    ("images", "values", "error", "message"),
    [
        (PLAIN, NAMES, SettingsError, UNKNOWN),
        (PLAIN, {"unseen_domain": "a,b,c"}, SettingsError, "leaves no domain to train on"),
        (
            index([(0, T), (0, V), (2, V)]),
            *({"training_domains": "a,c"}, DataError, "no training images in c"),
        ),
        (
            index([(0, T), (1, T)]),
            {"training_domains": "a", "validation_share": 0},
            *(SettingsError, r"data\.validation_share=0 leaves none"),
        ),
        (
            index(FEW[:2]),
            {"training_domains": "a", "unseen_domain": "c"},
            *(DataError, "no images in the unseen domain c"),
        ),
        (index([*FEW, (2, T)]), ADAPT, DataError, "target domain c has no images to measure on"),
        (index([*FEW, (2, E)]), ADAPT, DataError, "target domain c has no images to look at"),
        (PLAIN, {"train_on_unseen": True}, SettingsError, r"there is none; set data\.unseen_do"),
        (index([*FEW, (2, T)]), UPPER, DataError, r"c has no images to measure on; data\.train_on"),
        (UNLABELLED_C, UPPER, DataError, "needs labels, and c has none"),
        (UNLABELLED_C, {"unseen_domain": "c"}, DataError, "c has no labels to measure with"),
        (UNLABELLED_C, {"training_domains": "b,c"}, SettingsError, "no labels to train with in c"),
    ],
)
def test_roles_that_cannot_be_given(
    images: Index, values: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        roles_of(images, **values)


SHARED_OUT = Index(
    ("x", "y", "z"),
    ("a", "b"),
    tuple(f"{domain}/{number}" for domain in "ab" for number in range(100)),
    np.array(([0] * 60 + [1] * 38 + [2] * 2) * 2, dtype=np.int64),
    np.repeat([0, 1], 100),
    np.array(([V] + [T] * 18 + [E]) * 10, dtype=np.uint8),
)


def test_a_share_of_the_training_images_by_class() -> None:
    """Of 54, 35 and 1 training images of the three classes, a tenth and a fourth."""
    everything = roles_of(SHARED_OUT, unseen_domain="b")
    for share, expected in ((0.1, [5, 4, 1]), (0.25, [14, 9, 1]), (0.001, [1, 1, 1])):
        part = roles_of(SHARED_OUT, unseen_domain="b", share=share)
        assert np.bincount(SHARED_OUT.labels[part.train["a"]]).tolist() == expected
        for role in ("validation", "in_domain", "out_of_domain"):
            assert lists(getattr(part, role)) == lists(getattr(everything, role))
    shares = [roles_of(SHARED_OUT, share=n / 20).train["b"] for n in range(1, 21)]
    for smaller, larger in pairwise(shares):
        assert set(smaller) <= set(larger)
    assert shares[-1].tolist() == SHARED_OUT.rows("b", T).tolist()


def test_a_share_follows_names_and_the_seed_of_the_split() -> None:
    chosen = roles_of(SHARED_OUT, share=0.1).train["a"]
    names = {SHARED_OUT.names[row] for row in chosen}
    assert names == {"a/3", "a/4", "a/12", "a/30", "a/57", "a/67", "a/69", "a/89", "a/97", "a/98"}
    columns = ("names", "labels", "domain_of", "splits")
    turned = replace(SHARED_OUT, **{name: getattr(SHARED_OUT, name)[::-1] for name in columns})
    assert {turned.names[row] for row in roles_of(turned, share=0.1).train["a"]} == names
    assert set(roles_of(SHARED_OUT, share=0.1, split_seed=1).train["a"]) != set(chosen)


# what is said before a run whose classes or splits have few images

Counts = dict[str, dict[Split, int]]
"""By class and split."""


def said(domains: dict[str, Counts], **changes: Any) -> list[str]:
    experiment: Experiment = load_experiment("digits/aggregate", changes)
    images = [
        LabelledImage(f"{domain}/{name}/{split}{place}", name, domain, split)
        for domain, by_class in domains.items()
        for name, by_split in by_class.items()
        for split, number in by_split.items()
        for place in range(number)
    ]
    index = Digits(Digits.Config(name="digits"), None).index_of(images, published=[])
    data = experiment.data.model_copy(update={"unseen_domain": ("c",)})
    return warnings_about_images(index, choose_roles(index, data), experiment)


def sizes(cat: int, dog: int, validation: int = 30) -> Counts:
    return {"cat": {T: cat, V: validation}, "dog": {T: dog, V: validation}}


FINE, UNSEEN, LAST = sizes(50, 6), {"cat": {T: 1}, "dog": {T: 500}}, {"selection": "last"}
FEW_TO_CHOOSE_BY = (
    r"48 validation images are too few to choose a checkpoint by.*selection=last.*"
    r"data\.split_seed=1"
)


@pytest.mark.parametrize(
    ("domains", "changes", "expected"),
    [
        ({"a": FINE, "b": FINE}, {}, ""),
        ({"a": sizes(50, 5), "b": sizes(50, 5)}, {}, ""),  # the unseen domain plays no part
        (
            {"a": sizes(50, 5), "b": sizes(50, 4)},
            {},
            r"Classes are skewed: 100 training images of cat, 9 of dog\..*metric=balanced.*"
            r"sampling=class_balanced.*",
        ),
        ({"a": sizes(500, 5)}, {"metric": "macro_f1"}, r"[^;]*rare ones: sampling=class_bal.*"),
        (
            {"a": sizes(500, 5)},
            {"metric": "balanced", "sampling": "class_balanced"},
            r"Classes are skewed: 500 training images of cat, 5 of dog\.",
        ),
        (
            {"a": FINE, "b": {"cat": {T: 10, V: 30}}},
            {},
            r"Some training domains lack classes: b: dog\.",
        ),
        (
            {"a": FINE, "b": {"cat": {T: 10, V: 30}, "dog": {V: 1, E: 2}}},
            {},
            "Some classes are only in the validation and test images of a domain, none to train "
            r"on: b: dog;.*data\.split_seed.*",
        ),
        (
            {"a": FINE, "b": FINE, "c": UNSEEN | {"elk": {T: 5}}},
            {},
            "5 images of the unseen domain are of classes that no training domain has: elk.*",
        ),
        (
            {"a": FINE | {"elk": {V: 3}}, "b": FINE},
            {},
            "No training domain has a training image of elk:.*",
        ),
        ({"a": sizes(50, 6, 13), "b": sizes(50, 6, 13)}, {}, ""),  # four times 13 are 52
        ({"a": sizes(50, 6, 12), "b": sizes(50, 6, 12)}, {}, FEW_TO_CHOOSE_BY + ".*"),
        ({"a": sizes(50, 6, 12), "b": sizes(50, 6, 12)}, LAST, ""),  # nothing is chosen
    ],
)
def test_what_is_said_of_few_images(
    domains: dict[str, Counts], changes: dict[str, Any], expected: str
) -> None:
    assert re.fullmatch(expected, "\n".join(said({"c": UNSEEN} | domains, **changes)))


def test_it_is_said_how_many_images_are_left_out_for_their_groups() -> None:
    experiment = load_experiment("digits/aggregate", {"data": {"unseen_domain": "c"}})
    warnings = warnings_about_images(GROUPED, roles_of(GROUPED, unseen_domain="c"), experiment)
    assert any(text.startswith("2 images of the training domains are left") for text in warnings)
