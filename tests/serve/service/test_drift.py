"""The drift watch: formulas by hand, and levels in a service."""

import numpy as np
import pytest
from tests.serve.service.asking import MULTIPART, BrightnessModel, ask, multipart
from tests.serve.service.made_profile import made_profile

from unseen.forecast.profile import STATISTICS
from unseen.serve.drift import (
    ALL_DOMAINS,
    Observations,
    StrangenessScale,
    Window,
    compare,
    distance,
    raw_scores,
    references,
    softmax,
)

CLASSES, DOMAINS = ["dark", "bright"], ["night", "day"]
TEMPERATURE = 2.0


def drawn(images: int, home: float, shift: float = 0.0, sure: float = 3.0) -> Observations:
    """As in the made profile, of the domain with the number `home`."""
    random = np.random.default_rng(1)
    scores = random.normal(size=(images, 2))
    scores[np.arange(images), np.arange(images) % 2] += sure
    statistics = home + random.normal(0, 0.1, (images, len(STATISTICS)))
    statistics[:, 3:6] += shift
    return Observations(scores, random.uniform(0, 0.2, images), statistics, TEMPERATURE)


def test_distance_of_a_case_worked_out_by_hand() -> None:
    """Up to 2 lie 2 of 4 values then and 0 of 2 now; up to 3 it is 3 of 4 and 1 of 2."""
    assert distance(np.array([1.0, 2, 3, 4]), np.array([3.0, 5])) == pytest.approx(0.5)
    assert distance(np.array([1.0, 2]), np.array([1.0, 2])) == 0
    assert distance(np.array([1.0, 2]), np.array([7.0, 8])) == 1


def test_raw_scores_undo_the_temperature() -> None:
    scores = np.array([[1.0, 2.0, -3.0]])
    calibrated = softmax(scores / TEMPERATURE)
    assert softmax(raw_scores(calibrated, TEMPERATURE)) == pytest.approx(softmax(scores))


def test_images_of_one_training_domain_are_as_in_training() -> None:
    known = references(made_profile(CLASSES, DOMAINS, 200), TEMPERATURE)
    assert set(known) == {ALL_DOMAINS, *DOMAINS}
    found = compare(drawn(200, home=1), known)
    assert found.compared_with == "day"
    assert found.level == "as in training"
    assert compare(drawn(49, home=1), known).level == "too few images"


def test_levels_follow_what_changed() -> None:
    known = references(made_profile(CLASSES, DOMAINS, 200), TEMPERATURE)
    other = compare(drawn(200, home=1, shift=0.5), known)
    assert other.level == "very different"
    very = {each.measure for each in other.differences if each.level == "very different"}
    assert very == {"contrast", "colourfulness", "saturation"}
    unsure = compare(drawn(200, home=1, sure=0.0), known)
    levels = {each.measure: each.level for each in unsure.differences}
    assert levels["confidence"] == "very different"
    assert unsure.level == "very different"


def test_one_statistic_alone_is_not_another_world() -> None:
    known = references(made_profile(CLASSES, DOMAINS, 200), TEMPERATURE)
    now = drawn(200, home=1)
    now.statistics[:, 0] += 5
    found = compare(now, known)
    assert [each.measure for each in found.differences if each.difference == 1] == ["width"]
    assert found.level == "somewhat different"


def test_what_chance_brings_is_no_difference() -> None:
    """Eighty draws of sixty images from the validation images themselves."""
    profile = made_profile(CLASSES, DOMAINS, 200)
    whole = references(profile, TEMPERATURE)[ALL_DOMAINS]
    random = np.random.default_rng(2)
    levels = []
    for _ in range(80):
        rows = random.choice(200, 60, replace=False)
        assert whole.disagreement is not None
        some = Observations(
            whole.scores[rows], whole.disagreement[rows], whole.statistics[rows], TEMPERATURE
        )
        levels.append(compare(some, {ALL_DOMAINS: whole}).level)
    assert levels.count("as in training") >= 79


def test_a_window_forgets_the_oldest() -> None:
    window = Window(3, 2, TEMPERATURE)
    for number in range(5):
        share = 0.1 * (number + 1)
        window.add(np.array([share, 1 - share]), None, np.full(len(STATISTICS), number))
    now = window.copy()
    assert sorted(now.statistics[:, 0]) == [2, 3, 4]
    assert now.disagreement is None
    assert window.total == 5
    shown = softmax(now.scores / TEMPERATURE)
    assert sorted(shown[:, 0]) == pytest.approx([0.3, 0.4, 0.5])


def test_strangeness_is_a_rank_among_validation_images() -> None:
    profile = made_profile(CLASSES, DOMAINS, 200)
    scale = StrangenessScale.of(profile)
    assert scale is not None
    shares = [scale(row).share for row in profile.statistics]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)
    usual = scale(np.full(len(STATISTICS), 1.0, dtype=np.float32))
    assert (usual.share, usual.closest_domain) == (0.0, "day")
    odd = np.full(len(STATISTICS), 0.0, dtype=np.float32)
    odd[7] = 3
    assert scale(odd) == (1.0, "night", STATISTICS[7])
    assert StrangenessScale.of(None) is None


def test_the_service_reports_drift(served, picture) -> None:
    model = BrightnessModel()
    model.profile = made_profile(CLASSES, DOMAINS, 60)
    form = {"content-type": MULTIPART}

    async def work(guard, _):
        before = await ask(guard, "/drift")
        body = [multipart(*[("a.png", picture())] * 30)]
        replies = [await ask(guard, "/predict", body, form) for _ in range(2)]
        return before, replies[0], await ask(guard, "/drift"), await ask(guard, "/metrics")

    before, reply, drift, metrics = served(work, model)
    assert before.content == {"level": "too few images", "images": 0, "total": 0}
    entry = reply.content["images"][0]
    assert entry["strangeness"] == 1.0
    assert entry["closest_domain"] in DOMAINS
    found = drift.content
    assert (found["level"], found["images"], found["total"]) == ("very different", 60, 60)
    assert {each["measure"] for each in found["measures"]} >= {"confidence", "brightness"}
    shares = {each["class"]: each["now"] for each in found["classes"]}
    assert shares == {"dark": 0.0, "bright": 1.0}
    forecast = found["forecast"]
    assert 0 <= forecast["low"] <= forecast["accuracy"] <= forecast["high"] <= 1
    assert forecast["source_accuracy"] == pytest.approx(model.profile.accuracy)
    assert "of the last 60 answers are right" in forecast["text"]
    lines = metrics.body.decode().splitlines()
    assert "unseen_drift_level 3" in lines
    assert f"unseen_forecast_accuracy {forecast['accuracy']!r}" in lines
    assert 'unseen_drift_difference{measure="width"} 1' in lines


def test_a_model_without_a_profile_says_so(served) -> None:
    async def work(guard, _):
        return await ask(guard, "/drift")

    assert "no profile" in served(work).content["note"]
