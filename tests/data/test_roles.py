from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from unseen.data.index import UNLABELLED, Index, Split
from unseen.data.roles import choose_roles, warnings_about_images
from unseen.errors import DataError, SettingsError
from unseen.settings.experiment import DataSettings
from unseen.settings.recipes import load_experiment

T, V, E, U = Split.TRAIN, Split.VALIDATION, Split.TEST, Split.UNSEEN


def index(rows: list[tuple[int, Split]], official_test: bool = False) -> Index:
    """Images of the domains a, b, c; (domain, split) each."""
    domain_of, splits = zip(*rows, strict=True)
    names = tuple(str(number) for number in range(len(rows)))
    labels = np.zeros(len(rows), dtype=np.int64)
    return Index(
        ("x", "y"),
        ("a", "b", "c"),
        names,
        labels,
        np.array(domain_of, dtype=np.int64),
        np.array(splits, dtype=np.uint8),
        official_test,
    )


ROWS = [(0, T), (0, V), (0, E), (1, T), (1, V), (1, T), (2, T), (2, V), (2, E)]


def settings(**values: object) -> DataSettings:
    return DataSettings.model_validate({"name": "digits", **values})


def lists(positions: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {domain: rows.tolist() for domain, rows in positions.items()}


def test_unseen_domain_is_whole_and_nowhere_else() -> None:
    roles = choose_roles(index(ROWS), settings(unseen_domain="c"))
    assert roles.training_domains == ("a", "b")
    assert roles.unseen_domains == ("c",)
    assert lists(roles.train) == {"a": [0], "b": [3, 5]}
    assert lists(roles.validation) == {"a": [1], "b": [4]}
    assert lists(roles.in_domain) == {"a": [2], "b": [4]}
    assert lists(roles.out_of_domain) == {"c": [6, 7, 8]}


def test_official_test_rows_measure_the_unseen_domain() -> None:
    official = index(ROWS, official_test=True)
    assert lists(choose_roles(official, settings(unseen_domain="c")).out_of_domain) == {"c": [8]}
    assert lists(choose_roles(official, settings(unseen_domain="b")).out_of_domain) == {
        "b": [3, 4, 5]
    }


def test_rows_for_the_unseen_case_only() -> None:
    rows = [*ROWS, (2, U), (0, U)]
    roles = choose_roles(index(rows, official_test=True), settings(unseen_domain="c"))
    assert lists(roles.out_of_domain) == {"c": [9]}
    used = [*roles.train.values(), *roles.validation.values(), *roles.in_domain.values()]
    assert 10 not in np.concatenate(used)


def test_several_unseen_none_and_one_training_domain() -> None:
    roles = choose_roles(index(ROWS), settings(training_domains="b", unseen_domain=["c", "a"]))
    assert roles.training_domains == ("b",)
    assert roles.unseen_domains == ("a", "c")
    everything = choose_roles(index(ROWS), settings())
    assert everything.training_domains == ("a", "b", "c")
    assert everything.out_of_domain == {}


def test_mistaken_names_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        choose_roles(index(ROWS), settings(training_domains="aa", unseen_domain="d"))
    assert "data.training_domains: unknown domain 'aa'; did you mean 'a'?" in str(caught.value)
    assert "data.unseen_domain: unknown domain 'd' (known: a, b, c)" in str(caught.value)


def test_nothing_to_train_on() -> None:
    with pytest.raises(SettingsError, match="leaves no domain to train on"):
        choose_roles(index(ROWS), settings(unseen_domain="a,b,c"))
    with pytest.raises(DataError, match="no training images in c"):
        choose_roles(index([(0, T), (0, V), (2, V)]), settings(training_domains="a,c"))


def test_no_validation_images_names_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"data\.validation_share=0 leaves none"):
        choose_roles(index([(0, T), (1, T)]), settings(training_domains="a", validation_share=0))


def test_empty_unseen_domain() -> None:
    with pytest.raises(DataError, match="no images in the unseen domain c"):
        choose_roles(index([(0, T), (0, V)]), settings(training_domains="a", unseen_domain="c"))


def test_in_adaptation_the_target_is_looked_at_and_measured_on_other_images() -> None:
    roles = choose_roles(index(ROWS), settings(unseen_domain="c"), "adaptation")
    assert roles.target_rows.tolist() == [6]
    assert lists(roles.out_of_domain) == {"c": [7, 8]}
    assert lists(roles.train) == {"a": [0], "b": [3, 5]}
    official = choose_roles(
        index(ROWS, official_test=True), settings(unseen_domain="c"), "adaptation"
    )
    assert lists(official.out_of_domain) == {"c": [8]}
    assert choose_roles(index(ROWS), settings(unseen_domain="c")).target == {}


def test_a_target_without_images_to_look_at_or_to_measure_on_is_refused() -> None:
    rows = [(0, T), (0, V), (1, T)]
    with pytest.raises(DataError, match="target domain c has no images to measure on"):
        choose_roles(index([*rows, (2, T)]), settings(unseen_domain="c"), "adaptation")
    with pytest.raises(DataError, match="target domain c has no images to look at"):
        choose_roles(index([*rows, (2, E)]), settings(unseen_domain="c"), "adaptation")


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
    everything = choose_roles(SHARED_OUT, settings(unseen_domain="b"))
    for share, expected in ((0.1, [5, 4, 1]), (0.25, [14, 9, 1]), (0.001, [1, 1, 1])):
        part = choose_roles(SHARED_OUT, settings(unseen_domain="b", share=share))
        found = part.train["a"]
        assert np.bincount(SHARED_OUT.labels[found]).tolist() == expected
        assert set(found) < set(everything.train["a"])
        for role in ("validation", "in_domain", "out_of_domain"):
            assert lists(getattr(part, role)) == lists(getattr(everything, role))


def test_a_smaller_share_is_part_of_a_larger_one() -> None:
    shares = [choose_roles(SHARED_OUT, settings(share=n / 20)).train["b"] for n in range(1, 21)]
    for smaller, larger in pairwise(shares):
        assert set(smaller) <= set(larger)
    assert shares[-1].tolist() == SHARED_OUT.rows("b", T).tolist()


def test_a_share_follows_names_and_the_seed_of_the_split() -> None:
    chosen = choose_roles(SHARED_OUT, settings(share=0.1)).train["a"]
    names = {SHARED_OUT.names[row] for row in chosen}
    assert names == {"a/3", "a/4", "a/12", "a/30", "a/57", "a/67", "a/69", "a/89", "a/97", "a/98"}
    turned = replace(
        SHARED_OUT,
        names=SHARED_OUT.names[::-1],
        labels=SHARED_OUT.labels[::-1],
        domain_of=SHARED_OUT.domain_of[::-1],
        splits=SHARED_OUT.splits[::-1],
    )
    again = choose_roles(turned, settings(share=0.1)).train["a"]
    assert {turned.names[row] for row in again} == names
    other = choose_roles(SHARED_OUT, settings(share=0.1, split_seed=1)).train["a"]
    assert set(other) != set(chosen)


def test_several_targets_are_looked_at_together_and_measured_apart() -> None:
    rows = [*ROWS, (1, E)]
    roles = choose_roles(index(rows), settings(unseen_domain="c,b"), "adaptation")
    assert roles.training_domains == ("a",)
    assert roles.unseen_domains == ("b", "c")
    assert lists(roles.target) == {"b": [3, 5], "c": [6]}
    assert roles.target_rows.tolist() == [3, 5, 6]
    assert lists(roles.out_of_domain) == {"b": [4, 9], "c": [7, 8]}


def test_an_upper_bound_trains_on_the_unseen_domain_and_on_no_image_that_measures() -> None:
    chosen = settings(unseen_domain="a", train_on_unseen=True)
    roles = choose_roles(index([*ROWS, (0, T)]), chosen)
    assert roles.training_domains == ("b", "c", "a")  # the unseen one last
    assert roles.unseen_domains == ("a",)
    assert lists(roles.train) == {"b": [3, 5], "c": [6], "a": [0, 9]}
    assert lists(roles.out_of_domain) == {"a": [1, 2]}
    assert lists(roles.validation) == {"b": [4], "c": [7]}  # nothing of it chooses
    assert lists(roles.in_domain) == {"b": [4], "c": [8]}
    assert roles.target == {}
    trained = np.concatenate(list(roles.train.values()))
    assert not set(trained) & set(np.concatenate(list(roles.out_of_domain.values())))
    official = choose_roles(index(ROWS, official_test=True), chosen)
    assert lists(official.out_of_domain) == {"a": [2]}
    smaller = choose_roles(index([*ROWS, (0, T)]), chosen.model_copy(update={"share": 0.5}))
    assert len(smaller.train["a"]) == 1
    assert lists(smaller.out_of_domain) == {"a": [1, 2]}


def test_an_upper_bound_needs_an_unseen_domain_with_images_for_both() -> None:
    with pytest.raises(SettingsError, match=r"there is none; set data\.unseen_domain"):
        choose_roles(index(ROWS), settings(train_on_unseen=True))
    rows = index([row for row in ROWS if row[0] != 2 or row[1] == T])
    with pytest.raises(DataError, match=r"c has no images to measure on; data\.train_on_unseen"):
        choose_roles(rows, settings(unseen_domain="c", train_on_unseen=True))


def test_a_domain_without_labels_is_a_target_and_nothing_else() -> None:
    rows = index(ROWS)
    labels = np.where(rows.domain_of == 2, UNLABELLED, rows.labels)
    rows = replace(rows, labels=labels)
    roles = choose_roles(rows, settings())
    assert roles.training_domains == ("a", "b")
    adapted = choose_roles(rows, settings(unseen_domain="c"), "adaptation")
    assert adapted.training_domains == ("a", "b")
    assert lists(adapted.target) == {"c": [6, 7, 8]}
    assert adapted.out_of_domain == {}
    with pytest.raises(DataError, match="unseen domain c has no labels to measure with"):
        choose_roles(rows, settings(unseen_domain="c"))
    with pytest.raises(SettingsError, match="no labels to train with in c"):
        choose_roles(rows, settings(training_domains="b,c"))
    with pytest.raises(DataError, match="needs labels, and c has none"):
        choose_roles(rows, settings(unseen_domain="c", train_on_unseen=True))


def test_groups_of_the_unseen_domain_neither_train_nor_choose() -> None:
    """Images 0 and 6, and 4 and 7, are twins; with c unseen, 0 and 4 would give answers away."""
    groups = ("0", "1", "2", "3", "4", "5", "0", "4", "2")
    grouped = replace(index([*ROWS[:5], (1, V), *ROWS[6:], (0, T)]), groups=(*groups, "9"))
    roles = choose_roles(grouped, settings(unseen_domain="c"))
    assert lists(roles.train) == {"a": [9], "b": [3]}
    assert lists(roles.validation) == {"a": [1], "b": [5]}
    assert lists(roles.in_domain) == {"a": [2], "b": [5]}
    assert lists(roles.out_of_domain) == {"c": [6, 7, 8]}
    everything = choose_roles(grouped, settings())
    assert lists(everything.train) == {"a": [0, 9], "b": [3], "c": [6]}
    upper_bound = choose_roles(grouped, settings(unseen_domain="c", train_on_unseen=True))
    assert lists(upper_bound.train) == {"a": [0, 9], "b": [3], "c": [6]}
    experiment = load_experiment("digits/aggregate", {"data": {"unseen_domain": "c"}})
    warnings = warnings_about_images(grouped, roles, experiment)
    assert any(text.startswith("2 images of the training domains are left") for text in warnings)
