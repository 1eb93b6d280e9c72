"""The drift watch: formulas by hand, and levels in a service."""

import numpy as np
import pytest
from benchmarks.service.clients import multipart
from tests.forecast.made import made_profile
from tests.serve.service.asking import BrightnessModel, ask, metric, picture

from unseen.forecast.profile import STATISTICS, ModelOutputs
from unseen.serve.drift import (
    ALL_DOMAINS,
    DriftWatch,
    OutlierScale,
    compare,
    distance,
    overall,
    validation_sets,
)

CLASSES, DOMAINS = ["dark", "bright"], ["night", "day"]
TEMPERATURE = 2.0
PROFILE = made_profile(CLASSES, DOMAINS, 200)
VALIDATION = validation_sets(PROFILE)


def made(images: int, shift: float = 0.0, sure: float = 3.0) -> ModelOutputs:
    """Of images as in the profile, all from the domain `day`."""
    random = np.random.default_rng(1)
    scores = random.normal(size=(images, 2))
    scores[np.arange(images), np.arange(images) % 2] += sure
    statistics = 1 + random.normal(0, 0.1, (images, len(STATISTICS)))
    statistics[:, 3:6] += shift
    return ModelOutputs(scores, random.uniform(0, 0.2, images), statistics)


def levels(now: ModelOutputs, references=VALIDATION) -> tuple[str, str, dict[str, str]]:
    """The closest domain, the level of all measures together, and of each that is not usual."""
    domain, measures = compare(now, references, TEMPERATURE)
    unusual = {each.measure: each.level for each in measures if each.level != "as in training"}
    return domain, overall(measures, len(now.scores)), unusual


def test_distance_of_a_case_worked_out_by_hand() -> None:
    """Up to 2 lie 2 of 4 values then and 0 of 2 now; up to 3 it is 3 of 4 and 1 of 2."""
    assert distance(np.array([1.0, 2, 3, 4]), np.array([3.0, 5])) == pytest.approx(0.5)
    assert distance(np.array([1.0, 2]), np.array([1.0, 2])) == 0
    assert distance(np.array([1.0, 2]), np.array([7.0, 8])) == 1


def test_levels_follow_what_changed() -> None:
    """Images of one training domain are as in training; one statistic alone is no other world."""
    assert set(VALIDATION) == {ALL_DOMAINS, *DOMAINS}
    assert levels(made(200)) == ("day", "as in training", {})
    assert levels(made(49))[1] == "too few images"
    _, level, unusual = levels(made(200, shift=0.5))
    assert level == "very different"
    assert unusual == dict.fromkeys(("contrast", "colourfulness", "saturation"), level)
    _, level, unusual = levels(made(200, sure=0.0))
    assert level == unusual["confidence"] == "very different"
    now = made(200)
    assert now.statistics is not None
    now.statistics[:, 0] += 5
    assert levels(now)[1:] == ("somewhat different", {"width": "very different"})


def test_what_chance_brings_is_no_difference() -> None:
    """Eighty draws of sixty images from the validation images themselves."""
    whole = VALIDATION[ALL_DOMAINS]
    random = np.random.default_rng(2)
    found = []
    for _ in range(80):
        rows = random.choice(200, 60, replace=False)
        some = ModelOutputs(*(None if each is None else each[rows] for each in whole))  # pyright: ignore
        found.append(levels(some, {ALL_DOMAINS: whole})[1])
    assert found.count("as in training") >= 79


def test_a_window_forgets_the_oldest_and_looks_before_calibration() -> None:
    model = BrightnessModel()
    model.profile, model.fitted_temperature = PROFILE, TEMPERATURE
    watch = DriftWatch(model, window=60)
    for number in range(100):
        raw = np.array([0.2, 0.8]) if number >= 40 else np.array([1.0, 0.0])
        calibrated = np.sqrt(raw) / np.sqrt(raw).sum()  # a temperature of 2
        watch.add(calibrated, np.stack([calibrated, [1.0, 0.0]]), np.zeros(len(STATISTICS)))
    report = watch.report()
    assert (report["images"], report["total"]) == (60, 100)
    assert [each["now"] for each in report["classes"]] == [0, 1]
    values = {each["measure"]: each.get("now") for each in report["measures"]}
    assert values["confidence"] == pytest.approx(np.sqrt(0.8) / np.sqrt([0.2, 0.8]).sum())
    # of (0.2, 0.8) and (1, 0): H of the mean is 0.67301, the mean of H 0.25020, at most ln 2
    assert values["disagreement"] == pytest.approx((0.67301 - 0.25020) / np.log(2), abs=1e-4)


def test_outlier_score_is_a_rank_among_validation_images() -> None:
    scale = OutlierScale.of(PROFILE)
    assert scale is not None
    scores = [scale(row)[0] for row in PROFILE.statistics]
    assert np.mean(scores) == pytest.approx(0.5, abs=0.01)
    assert scale(np.full(len(STATISTICS), 1.0, dtype=np.float32))[:2] == (0.0, "day")
    odd = np.full(len(STATISTICS), 0.0, dtype=np.float32)
    odd[7] = 3
    assert scale(odd) == (1.0, "night", STATISTICS[7])
    assert OutlierScale.of(None) is None


def test_the_service_reports_drift(served) -> None:
    model = BrightnessModel()
    model.profile = made_profile(CLASSES, DOMAINS, 60)

    async def work(guard, _):
        before = await ask(guard, "/drift")
        body = multipart(*[picture()] * 30)
        replies = [await ask(guard, "/predict", body) for _ in range(2)]
        return before, replies[0], await ask(guard, "/drift"), await ask(guard, "/metrics")

    before, reply, drift, metrics = served(work, model)
    assert before.content["level"] == "too few images"
    assert (before.content["images"], before.content["total"]) == (0, 0)
    entry = reply.content["images"][0]
    assert entry["outlier_score"] == 1.0
    assert entry["closest_domain"] in DOMAINS
    found = drift.content
    assert (found["level"], found["images"], found["total"]) == ("very different", 60, 60)
    assert {each["measure"] for each in found["measures"]} >= {"confidence", "brightness"}
    assert {each["class"]: each["now"] for each in found["classes"]} == {"dark": 0, "bright": 1}
    forecast = found["forecast"]
    assert 0 <= forecast["low"] <= forecast["accuracy"] <= forecast["high"] <= 1
    assert forecast["source_accuracy"] == pytest.approx(model.profile.accuracy)
    assert "of the latest 60 predictions are right" in forecast["text"]
    lines = metrics.body.decode().splitlines()
    assert metric(lines, "unseen_drift_level") == 3
    assert metric(lines, "unseen_forecast_accuracy") == forecast["accuracy"]
    assert metric(lines, 'unseen_drift_difference{measure="width"}') == 1


def test_the_watch_can_be_off_and_needs_a_profile(asked) -> None:
    model = BrightnessModel()
    model.profile = PROFILE
    watch = DriftWatch(model, window=0)
    assert (watch.measures, watch.outlier_scale) == (False, None)
    assert "--window 0" in watch.report()["note"]
    assert DriftWatch(model).measures
    assert "no profile" in asked("/drift").content["note"]
