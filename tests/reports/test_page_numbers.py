"""What the page says is what the records hold: means, intervals and differences worked by hand, and
a first sentence that claims no more than the runs can carry."""

import csv
import io
import re
from html import unescape
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from tests.made_results import counted, made_result

from unseen.reports.page.results import conclude
from unseen.results.result import Calibration, DomainResult, RuleResult

NO_NOISE = "not larger than the noise between seeds"


def fill(make_run, method: str, domains: tuple[str, ...], by_seed, training=None) -> None:
    """A run for each seed and domain."""
    for seed, accuracies in enumerate(by_seed):
        for domain, accuracy in zip(domains, accuracies, strict=True):
            make_run(method, {domain: accuracy}, training or {"cartoon": 0.8}, seed=seed)


@pytest.mark.parametrize(
    ("aggregate", "dmg", "headline", "number", "verdict", "said"),
    [
        (  # by seed: 1, 1.5, 1; mean 1.167, half width 4.303 · 0.2887 / √3 = 0.717
            ((0.8, 0.6), (0.8, 0.7), (0.8, 0.8)),
            ((0.81, 0.61), (0.82, 0.71), (0.81, 0.81)),
            *("dmg held up best on unseen domains", "76.2 ± 12.4 %", "clear"),
            "1.2 percentage points above aggregate, the baseline and next best (95 % interval 0.4 "
            "to 1.9, paired by seed and unseen domain, 3 seeds): larger than the noise between "
            "seeds.",
        ),
        (
            ((0.8, 0.6), (0.8, 0.7)),
            ((0.9, 0.6), (0.8, 0.7)),
            "dmg came first on unseen domains, but not by more than noise",
            *("75.0 ± 0.0 %", "unclear", f"2 seeds): {NO_NOISE}"),
        ),
        (  # by domain: 2 and 6; mean 4, half width 12.706 · 2.828 / √2 = 25.4
            *(((0.8, 0.6),), ((0.82, 0.66),)),
            *("dmg came first on unseen domains, with one seed", "74.0 %", "untold"),
            "−21.4 to 29.4 points above aggregate (95 % t-interval over domains, not over seeds)",
        ),
        (  # over all seeds, aggregate has 60 and dmg 70; but on the seed that both have, 80 and 70
            *(((0.8, 0.8), (0.4, 0.4)), ((0.7, 0.7),)),
            *("aggregate came first on unseen domains, with one seed", "80.0 %", "untold"),
            "No method did better than the baseline, aggregate. Compared over seed 0, which all "
            "ranked methods have.",
        ),
    ],
)
def test_the_conclusion_tells_differences_from_noise(
    make_run, studies, aggregate, dmg, headline, number, verdict, said
) -> None:
    for method, values in (("aggregate", aggregate), ("dmg", dmg)):
        fill(make_run, method, ("photo", "sketch"), values)
    told = conclude(studies()[0], "source")
    assert told.headline == headline
    assert told.number == f"{number} (mean over 2 unseen domains)"
    assert told.verdict == verdict
    assert said in " ".join(told.sentences)


def test_a_method_that_lacks_a_domain_or_a_result_is_not_ranked(make_run, studies) -> None:
    make_run("dmg", {"photo": 0.99}, finished=False)
    told = conclude(studies()[0], "source")
    assert told.headline == "No run has finished yet"
    assert told.sentences == ("1 of 1 runs is not finished.",)
    fill(make_run, "aggregate", ("photo", "sketch"), [(0.8, 0.6)])
    make_run("dmg", {"photo": 0.99}, seed=1)
    told = conclude(studies()[0], "source")
    assert told.headline == "aggregate on unseen domains"
    assert "Not ranked, for lack of results: dmg." in told.sentences


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


def test_tables_charts_and_downloads_have_the_same_numbers(make_run, report, read_tables) -> None:
    """t(2 degrees) = 4.303: a spread of 2 points over three seeds is ± 4.303 · 2/√3 = 4.97."""
    inside = {"cartoon": 0.9, "art": 0.8}
    for method, by_seed in (
        ("aggregate", [(0.60, 0.80), (0.62, 0.80), (0.64, 0.80)]),
        ("dmg", [(0.64, 0.81), (0.66, 0.82), (0.68, 0.83)]),
    ):
        fill(make_run, method, ("sketch", "photo"), by_seed, inside)
    page = report()
    tables = read_tables(page)
    header, *rows = tables["Out-of-domain accuracy", "source"]
    assert header == ["method", "overall", "difference to aggregate", "photo", "sketch"]
    # overall of aggregate: 70, 71, 72; of dmg: 72.5, 74, 75.5; differences 2.5, 3, 3.5
    assert rows == [
        ["aggregate", "71.0 ± 2.5", "", "80.0 ± 0.0", "62.0 ± 5.0"],
        ["dmg", "74.0 ± 3.7", "+3.0 ± 1.2", "82.0 ± 2.5", "66.0 ± 5.0"],
        ["largest class", "100.0", "", "100.0", "100.0"],
    ]
    known = ["aggregate", "85.0 ± 0.0", "", "85.0 ± 0.0", "85.0 ± 0.0"]
    assert tables["In-domain accuracy", "last"][1] == known
    # in domain 85 for every seed; gap of dmg: 12.5, 11, 9.5
    assert tables["Worst domain and gap", "source"][1:] == [
        ["dmg", "74.0 ± 3.7", "66.0 (sketch)", "85.0", "11.0 ± 3.7"],
        ["aggregate", "71.0 ± 2.5", "62.0 (sketch)", "85.0", "14.0 ± 2.5"],
    ]
    assert 'aria-label="sketch: aggregate 62.0 ± 5.0; dmg 66.0 ± 5.0"' in page
    assert 'aria-label="overall: dmg +3.0 ± 1.2"' in page
    assert "dmg: 66.0 ± 5.0 (64.0, 66.0, 68.0)" in page  # single seeds, when one points at it
    downloads = dict(re.findall(r'<a download="(.*?)" href="(.*?)">', page))
    assert {"out_of_domain_last.md", "known_domain_source.tex"} <= set(downloads)
    kind, _, content = unescape(downloads["out_of_domain_source.csv"]).partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    records = list(csv.DictReader(io.StringIO(unquote(content))))
    overall = next(r for r in records if r["method"] == "dmg" and r["quantity"] == "overall")
    assert float(overall["mean"]) == pytest.approx(74.0)
    assert float(overall["half_width"]) == pytest.approx(4.302653 * 1.5 / 3**0.5)


def test_rules_have_numbers_of_their_own(make_run, report, read_tables) -> None:
    rules = {
        rule: made_result("aggregate", {"sketch": value}).rules[rule]
        for rule, value in (("source", 0.7), ("last", 0.5))
    }
    make_run("aggregate", {"sketch": 0.7}, results=rules)
    tables = read_tables(report())
    found = [tables["Out-of-domain accuracy", rule][1][1] for rule in ("source", "last")]
    assert found == ["70.0", "50.0"]


def test_confusions_add_up_over_seeds_and_calibration_is_the_records(
    make_run, report, read_tables
) -> None:
    confusions = ([[4, 1], [2, 3]], [[5, 0], [0, 5]])
    for seed, (confusion, correct) in enumerate(zip(confusions, ((2, 5), (4, 6)), strict=True)):
        bins = Calibration(images=(4, 6), confidence=(1.6, 5.4), correct=correct)
        each = DomainResult.counted(np.array(confusion), bins)
        results = {"source": RuleResult(step=1, views={"out_of_domain": {"sketch": each}})}
        make_run("aggregate", {"sketch": 0.7}, seed=seed, results=results)
    page = report()
    shares = "dog, dog: 90; dog, house: 10; house, dog: 20; house, house: 80"
    assert f'aria-label="aggregate: {shares}"' in page
    values = 'data-values="[[0.4,0.75,8],[0.9,0.9167,12]]"'
    assert f'{values} data-label="aggregate, ECE 19.0 %"' in page  # the mean of 8 and 30
    tables = read_tables(page)
    assert tables["Expected calibration error", "source"][1] == ["aggregate", "19.0"]
    weakest = ["aggregate", "sketch", "house", "80%", "10", "dog (20%)"]
    assert tables["Weakest classes", "source"][1] == weakest


def test_calibration_before_and_after_in_and_out_of_domain(make_run, report, read_tables) -> None:
    def domain(before: float, after: float) -> DomainResult:
        bins = [
            Calibration(images=(10,), confidence=(6 + 10 * error,), correct=(6,))
            for error in (before, after)
        ]
        return DomainResult.counted(np.array([[6, 4], [0, 0]]), *bins)  # a class without images

    inside = {"photo": domain(0.2, 0.04), "art": domain(0.1, 0.02)}
    views = {"out_of_domain": {"sketch": domain(0.2, 0.3)}, "in_domain": inside}
    rule = RuleResult(step=1, views=views, temperature=1.5)
    make_run("aggregate", {"sketch": 0.6}, results={"source": rule})
    page = report()
    tables = read_tables(page)
    rows = tables["Expected calibration error", "source"]
    assert rows == [["method", "sketch", "in domain"], ["aggregate", "20.0 → 30.0", "15.0 → 3.0"]]
    assert "Scaling made it worse: aggregate on sketch (20.0 → 30.0)." in page
    assert tables["Weakest classes", "source"][1][2:4] == ["dog", "60%"]
    assert "dog, dog: 60; dog, house: 40" in page


def test_classes_that_the_model_does_not_know_are_not_its_weakest(
    make_run, report, read_tables
) -> None:
    each = counted([[9, 1, 0], [5, 5, 0], [2, 2, 0]])
    results = {"source": RuleResult(step=1, views={"out_of_domain": {"sketch": each}})}
    make_run("aggregate", {"sketch": 0.5}, results=results)
    (_, row) = read_tables(report())["Weakest classes", "source"]
    assert row == ["aggregate", "sketch", "house", "50%", "10", "dog (50%)"]
