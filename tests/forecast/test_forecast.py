"""Differences, warnings, advice and the forecast as a whole, on made-up answers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.forecast.made import CLASSES, observed, profile

from unseen.errors import DataError
from unseen.forecast.estimate import (
    DIRECT,
    LARGEST,
    NAMES,
    Reference,
    find_differences,
    standardised_difference,
    tell_apart,
)
from unseen.forecast.forecast import Advice, ClassShare, Forecast, forecast
from unseen.forecast.profile import STATISTICS, ModelOutputs


def references() -> list[Reference]:
    names = dict.fromkeys(NAMES, 0.02)
    return [Reference(f"run {d}", d, 0.9, 0.88, names) for d in ("north", "south")]


def actions(made: Forecast) -> list[str]:
    return [each.action for each in made.advice]


def test_standardised_difference_by_hand() -> None:
    # means 3 and 1, variances 1 and 1
    assert standardised_difference(np.array([2.0, 4.0]), np.array([0.0, 2.0])) == 2
    assert standardised_difference(np.array([5.0, 5.0]), np.array([5.0, 5.0])) == 0
    assert standardised_difference(np.array([5.0]), np.array([4.0])) == LARGEST


def test_a_classifier_tells_apart_what_can_be_told() -> None:
    same, other = np.random.default_rng(0).normal(0, 1, (2, 100, 4))
    assert 0.3 < (tell_apart(same, other) or 0) < 0.65
    assert (tell_apart(same, other + 5) or 0) > 0.99
    assert tell_apart(same, other[:5]) is None


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize(("like", "closest"), [(0, "north"), (1, "south")])
def test_the_closest_domain_is_the_one_that_images_come_from(
    features: bool, like: int, closest: str
) -> None:
    found = find_differences(profile(features=features), observed(like=like))
    assert found is not None
    assert found.closest.domain == closest
    assert found.measured_by == ("features" if features else "image statistics")
    near, far = found.domains
    assert (near.auc or 1) < 0.65 < 0.95 < (far.auc or 0)
    assert far.statistics[0].statistic == "brightness"
    assert far.statistics[0].size == pytest.approx(3 if like else -3, abs=0.5)
    assert {e.statistic for e in far.statistics} == set(STATISTICS) - {"bytes per pixel"}


def test_the_first_outlier_is_the_image_far_away() -> None:
    images = observed()
    assert images.features is not None
    images.features[17] += 40
    found = find_differences(profile(), images)
    assert found is not None
    assert found.outliers(1)[0][0] == 17
    assert found.distance[17] > 3
    assert np.median(found.distance) == pytest.approx(1, abs=0.3)
    assert find_differences(profile(features=False), ModelOutputs(images.scores)) is None


def test_images_like_training_are_forecast_as_in_validation() -> None:
    source, images = profile(), observed(n=3000)
    assert images.features is not None
    images.features[:, 0] += 6 * np.random.default_rng(5).integers(0, 2, 3000)
    made = forecast(source, images, references())
    assert made.accuracy == pytest.approx(source.accuracy, abs=0.06)
    assert made.warnings == []
    assert made.low < made.accuracy < made.high
    low, high = made.spread
    assert low <= made.accuracy <= high
    assert [each.name for each in made.shares] == list(CLASSES)


def test_no_action_where_nothing_stands_out() -> None:
    made = forecast(profile(), observed(n=300), references())
    low, high = made.source_accuracy - 0.02, made.source_accuracy
    calm = replace(made, low=low, high=high, differences=None)
    assert actions(calm) == ["No action"]
    assert "No action" not in actions(forecast(profile(), observed(n=300)))


def test_warnings_and_advice_follow_from_what_is_seen() -> None:
    images = observed(n=40, unsure=4.0)
    strange = images._replace(
        scores=images.scores + np.array([6.0, 0, 0]),
        features=images.features + 50,  # pyright: ignore
        statistics=images.statistics - 9,  # pyright: ignore
    )
    made = forecast(profile(), strange)
    said = " ".join(made.warnings)
    for word in ("Without references", "Only 40 images", "cat is 100 %", "like those of no"):
        assert word in said, word
    found = actions(made)
    assert found[:2] == ["Train references", "Collect labels here"]
    assert "Train with stronger colour augmentation" in found
    assert "Check how the images are made" in found
    assert "Check the class shares, and re-weight" in found
    assert "Adapt with DANN" not in found  # 40 images are too few for that
    assert all(isinstance(each, Advice) and each.command and each.reason for each in made.advice)
    many = observed(n=300, unsure=4.0)
    made = forecast(profile(), many._replace(features=many.features + 50), references())  # pyright: ignore
    assert "Adapt with DANN" in actions(made)
    assert "Train references" not in actions(made)


def test_images_of_a_known_domain_are_to_be_treated_as_such() -> None:
    for opinions in (True, False):  # without, it predicts the same for every domain
        made = forecast(profile(opinions=opinions), observed(like=1), references())
        assert ("Treat them as south" in actions(made)) == opinions


def test_json_holds_everything_and_is_json() -> None:
    made = forecast(profile(opinions=True), observed(), references())
    content = json.loads(json.dumps(made.as_json(), allow_nan=False))
    assert content["accuracy"] == made.accuracy
    assert [each["domain"] for each in content["references"]] == ["north", "south"]
    assert content["differences"]["closest"] == "north"
    assert {each["name"] for each in content["estimates"]} >= set(DIRECT)


def test_scores_of_another_model_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[images, 3\]"):
        forecast(profile(), ModelOutputs(np.zeros((5, 4))))


def test_share_shift_by_hand() -> None:
    shares = (ClassShare("a", 0.5, 0.2), ClassShare("b", 0.5, 0.5), ClassShare("c", 0.0, 0.3))
    made = forecast(profile(), observed(), references())
    assert replace(made, shares=shares).share_shift == pytest.approx(0.3)
