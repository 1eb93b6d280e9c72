"""What is said before a run whose classes or splits have few images."""

from typing import Any

import pytest

from unseen.data.datasets.digits import Digits
from unseen.data.index import Index, LabelledImage, Split
from unseen.data.roles import choose_roles, warnings_about_images
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import load_experiment

TRAIN, VALIDATION, TEST = Split.TRAIN, Split.VALIDATION, Split.TEST


def make_index(counts: dict[str, dict[str, dict[Split, int]]]) -> Index:
    """Images by domain, class and split."""
    images, splits = [], []
    for domain, by_class in counts.items():
        for name, by_split in by_class.items():
            for split, number in by_split.items():
                for place in range(number):
                    images.append(LabelledImage(f"{domain}/{name}/{split}{place}", name, domain))
                    splits.append(split)
    given = [i._replace(split=s) for i, s in zip(images, splits, strict=True)]
    return Digits(Digits.Config(name="digits"), None).index_of(given, published=[])


def said(counts: dict[str, dict[str, dict[Split, int]]], **changes: Any) -> list[str]:
    experiment: Experiment = load_experiment("digits/aggregate", changes)
    index = make_index(counts)
    data = experiment.data.model_copy(update={"unseen_domain": ("c",)})
    return warnings_about_images(index, choose_roles(index, data), experiment)


def sizes(cat: int, dog: int, validation: int = 30) -> dict[str, dict[Split, int]]:
    return {
        "cat": {TRAIN: cat, VALIDATION: validation},
        "dog": {TRAIN: dog, VALIDATION: validation},
    }


FINE = sizes(50, 6)
UNSEEN = {"cat": {TRAIN: 1}, "dog": {TRAIN: 500}}


def test_nothing_is_said_where_there_are_enough_images() -> None:
    assert said({"a": FINE, "b": FINE, "c": UNSEEN}) == []


@pytest.mark.parametrize(("dogs", "number"), [(5, 0), (4, 1)])
def test_classes_skewed_by_more_than_ten_to_one_over_all_training_domains(
    dogs: int, number: int
) -> None:
    """100 cats in all; the unseen domain plays no part."""
    remarks = said({"a": sizes(50, 5), "b": sizes(50, dogs), "c": UNSEEN})
    assert len(remarks) == number
    for remark in remarks:
        assert remark.startswith("Classes are skewed: 100 training images of cat, 9 of dog.")
        assert "metric=balanced" in remark
        assert "sampling=class_balanced" in remark


def test_what_is_set_already_is_not_advised() -> None:
    counts = {"a": sizes(500, 5), "c": UNSEEN}
    (half,) = said(counts, metric="macro_f1")
    assert "metric=" not in half
    assert "sampling=class_balanced" in half
    (fact,) = said(counts, metric="balanced", sampling="class_balanced")
    assert fact == "Classes are skewed: 500 training images of cat, 5 of dog."


def test_classes_that_a_training_domain_lacks() -> None:
    lacking = {"cat": {TRAIN: 10, VALIDATION: 30}}
    assert said({"a": FINE, "b": lacking, "c": UNSEEN}) == [
        "Some training domains lack classes: b: dog."
    ]


def test_classes_without_a_training_image_in_a_domain() -> None:
    held_out = {"cat": {TRAIN: 10, VALIDATION: 30}, "dog": {VALIDATION: 1, TEST: 2}}
    (remark,) = said({"a": FINE, "b": held_out, "c": UNSEEN})
    assert "only in the validation and test images of a domain, none to train on: b: dog;" in remark
    assert "data.split_seed" in remark


def test_classes_that_no_training_domain_has() -> None:
    more = UNSEEN | {"elk": {TRAIN: 5}}
    (remark,) = said({"a": FINE, "b": FINE, "c": more})
    assert remark.startswith("5 images of the unseen domain are of classes that no training domain")
    assert "has: elk." in remark


def test_classes_that_are_only_held_out_in_the_training_domains() -> None:
    held_out = sizes(50, 6) | {"elk": {VALIDATION: 3}}
    (remark,) = said({"a": held_out, "b": FINE, "c": UNSEEN})
    assert remark.startswith("No training domain has a training image of elk:")


@pytest.mark.parametrize(("validation", "number"), [(13, 0), (12, 1)])
def test_too_little_validation_to_choose_by(validation: int, number: int) -> None:
    """Four times 13 are 52 images, four times 12 are 48."""
    counts = {"a": sizes(50, 6, validation), "b": sizes(50, 6, validation), "c": UNSEEN}
    remarks = said(counts)
    assert len(remarks) == number
    for remark in remarks:
        assert remark.startswith("48 validation images are too few to choose a checkpoint by")
        assert "selection=last" in remark
        assert "data.split_seed=1" in remark
    assert said(counts, selection="last") == [], "nothing is chosen"
