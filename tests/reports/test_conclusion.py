"""The page opens with a sentence that must not claim more than the runs can carry."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.made_results import counted

from unseen.reports.page.results import Conclusion, conclude, ranking
from unseen.results.result import RuleResult


@pytest.fixture
def concluded(studies) -> Callable[[], Conclusion]:
    return lambda: conclude(studies()[0], "source")


def fill(make_run, method: str, by_seed: dict[int, tuple[float, float]]) -> None:
    for seed, (photo, sketch) in by_seed.items():
        make_run(method, {"photo": photo}, {"sketch": 0.8}, seed=seed)
        make_run(method, {"sketch": sketch}, {"photo": 0.8}, seed=seed)


def test_a_difference_beyond_the_noise_is_called_so(make_run, concluded) -> None:
    fill(make_run, "aggregate", {0: (0.8, 0.6), 1: (0.8, 0.7), 2: (0.8, 0.8)})
    fill(make_run, "dmg", {0: (0.81, 0.61), 1: (0.82, 0.71), 2: (0.81, 0.81)})
    told = concluded()
    assert told.headline == "dmg held up best on unseen domains"
    assert told.number == "76.2 ± 12.4 % (mean over 2 unseen domains)"
    assert told.verdict == "clear"
    # by seed: 1, 1.5, 1; mean 1.167, half width 4.303 · 0.2887 / √3 = 0.717
    assert told.sentences[0] == (
        "1.2 percentage points above aggregate, the baseline and next best (95 % interval 0.4 to "
        "1.9, paired by seed and unseen domain, 3 seeds): larger than the noise between seeds."
    )


def test_a_difference_within_the_noise_is_not(make_run, concluded) -> None:
    fill(make_run, "aggregate", {0: (0.8, 0.6), 1: (0.8, 0.7)})
    fill(make_run, "dmg", {0: (0.9, 0.6), 1: (0.8, 0.7)})
    told = concluded()
    assert told.headline == "dmg came first on unseen domains, but not by more than noise"
    assert told.verdict == "unclear"
    assert "not larger than the noise" in told.sentences[0]


def test_one_seed_cannot_be_told_from_noise(make_run, concluded) -> None:
    fill(make_run, "aggregate", {0: (0.8, 0.6)})
    fill(make_run, "dmg", {0: (0.82, 0.66)})
    told = concluded()
    assert told.headline == "dmg came first on unseen domains, with one seed"
    assert (told.verdict, told.verdict_text) == ("untold", "one seed: cannot be told from noise")
    # by domain: 2 and 6; mean 4, half width 12.706 · 2.828 / √2 = 25.4
    assert "−21.4 to 29.4 points above aggregate" in told.sentences[0]
    assert "over domains, not over seeds" in told.sentences[0]


def test_methods_are_compared_over_the_seeds_they_share(make_run, concluded) -> None:
    """Over all seeds, aggregate has 60 and dmg 70; but on the seed that both have, 80 and 70."""
    fill(make_run, "aggregate", {0: (0.8, 0.8), 1: (0.4, 0.4)})
    fill(make_run, "dmg", {0: (0.7, 0.7)})
    told = concluded()
    assert told.headline.startswith("aggregate")
    assert told.number.startswith("80.0 %")
    assert "Compared over seed 0, which all ranked methods have." in told.sentences
    assert "No method did better than the baseline, aggregate." in told.sentences


def test_a_method_that_lacks_a_domain_is_not_ranked(make_run, concluded, studies) -> None:
    fill(make_run, "aggregate", {0: (0.8, 0.6)})
    make_run("dmg", {"photo": 0.99}, {"sketch": 0.8})
    assert [each.name for each in ranking(studies()[0], "source")] == ["aggregate"]
    assert "Not ranked, for lack of results: dmg." in concluded().sentences


def test_unfinished_runs_are_counted(make_run, concluded) -> None:
    make_run("dmg", {"photo": 0.8}, settings={"finished": False})
    told = concluded()
    assert told.headline == "No run has finished yet"
    assert told.sentences == ("1 of 1 runs is not finished.",)


def test_the_page_says_so_where_nothing_beats_the_largest_class(make_run, report) -> None:
    """72 % are right, and 80 % of the images are dogs; 70 % of each class are the second's."""
    for method, confusion in (("aggregate", [[70, 10], [18, 2]]), ("dmg", [[56, 24], [6, 14]])):
        views: Any = {"out_of_domain": {"sketch": counted(confusion)}}
        make_run(method, {"sketch": 0.0}, results={"source": RuleResult(step=200, views=views)})
    page = report()
    assert "not better than always answering with the largest class of each domain" in page
    assert "(80.0 %)" in page
    fair = report(metric="balanced")
    assert "70.0 % balanced accuracy (on sketch)" in fair
    assert "not better than always answering" not in fair
    assert "Balanced accuracy by unseen domain" in fair
