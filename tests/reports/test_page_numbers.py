"""What the page says is what the records hold: means, intervals and differences worked by hand."""

import csv
import io
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import unquote

import numpy as np
import pytest
from tests.made_results import counted

from unseen.reports.figures.grids import shares
from unseen.reports.page.classes import pool, reliabilities
from unseen.results.result import Calibration, DomainResult, RuleResult

AGGREGATE = {"sketch": (0.60, 0.62, 0.64), "photo": (0.80, 0.80, 0.80)}
DMG = {"sketch": (0.64, 0.66, 0.68), "photo": (0.81, 0.82, 0.83)}


Tables = dict[tuple[str, str], list[list[str]]]
"""All tables of a page by title and rule, as rows of texts."""


@pytest.fixture
def read_tables(report) -> Callable[[], Tables]:
    def read() -> Tables:
        page, found = report(), {}
        table = r'class="table"(?: data-rule="(\w+)")?>.*?<h3>(.*?)(?: <span.*?)?</h3>(.*?)</table>'
        for rule, title, content in re.findall(table, page, flags=re.S):
            rows = re.findall(r"<tr.*?</tr>", content, flags=re.S)
            cells = [re.findall(r"<t[hd][ >].*?</t[hd]>", row, flags=re.S) for row in rows]
            found[title, rule] = [[_text(cell) for cell in row] for row in cells]
        return found

    return read


def _text(cell: str) -> str:
    return unescape(re.sub("<.*?>", "", cell)).strip()


@pytest.fixture
def two_methods(make_run) -> None:
    for method, by_domain in (("aggregate", AGGREGATE), ("dmg", DMG)):
        for domain, accuracies in by_domain.items():
            for seed, accuracy in enumerate(accuracies):
                make_run(method, {domain: accuracy}, {"cartoon": 0.9, "art": 0.8}, seed=seed)


def test_tables_show_means_intervals_and_paired_differences(two_methods, read_tables) -> None:
    """t(2 degrees) = 4.303: a spread of 2 points over three seeds is ± 4.303 · 2/√3 = 4.97."""
    tables = read_tables()
    header, *rows = tables["Out-of-domain accuracy", "source"]
    assert header == ["method", "overall", "difference to aggregate", "photo", "sketch"]
    # overall of aggregate: 70, 71, 72; of dmg: 72.5, 74, 75.5; differences 2.5, 3, 3.5
    assert rows == [
        ["aggregate", "71.0 ± 2.5", "", "80.0 ± 0.0", "62.0 ± 5.0"],
        ["dmg", "74.0 ± 3.7", "+3.0 ± 1.2", "82.0 ± 2.5", "66.0 ± 5.0"],
        ["largest class", "100.0", "", "100.0", "100.0"],
    ]
    inside = tables["In-domain accuracy", "last"]
    assert inside[1] == ["aggregate", "85.0 ± 0.0", "", "85.0 ± 0.0", "85.0 ± 0.0"]


def test_downloads_hold_the_same_numbers(two_methods, report) -> None:
    found = re.findall(r'<a download="(.*?)" href="(.*?)">', report())
    downloads = {file: unescape(address) for file, address in found}
    kind, _, content = downloads["out_of_domain_source.csv"].partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(unquote(content))))
    overall = next(r for r in rows if r["method"] == "dmg" and r["quantity"] == "overall")
    assert float(overall["mean"]) == pytest.approx(74.0)
    assert float(overall["half_width"]) == pytest.approx(4.302653 * 1.5 / 3**0.5)
    assert {"out_of_domain_last.md", "known_domain_source.tex"} <= set(downloads)


def test_worst_domain_and_gap(two_methods, read_tables) -> None:
    tables = read_tables()
    rows = tables["Worst domain and gap", "source"][1:]
    # in domain 85 for every seed; gap of dmg: 12.5, 11, 9.5
    assert rows == [
        ["dmg", "74.0 ± 3.7", "66.0 (sketch)", "85.0", "11.0 ± 3.7"],
        ["aggregate", "71.0 ± 2.5", "62.0 (sketch)", "85.0", "14.0 ± 2.5"],
    ]


def test_charts_carry_the_same_numbers_as_the_tables(two_methods, report) -> None:
    page = report()
    assert 'aria-label="sketch: aggregate 62.0 ± 5.0; dmg 66.0 ± 5.0"' in page
    assert 'aria-label="overall: dmg +3.0 ± 1.2"' in page
    assert "dmg: 66.0 ± 5.0 (64.0, 66.0, 68.0)" in page  # single seeds, when one points at it


def test_rules_have_numbers_of_their_own(make_run, make_result, read_tables) -> None:
    better = make_result("aggregate", {"sketch": 0.7}).rules["source"]
    worse = make_result("aggregate", {"sketch": 0.5}).rules["last"]
    make_run("aggregate", {"sketch": 0.7}, results={"source": better, "last": worse})
    tables = read_tables()
    assert tables["Out-of-domain accuracy", "source"][1][1] == "70.0"
    assert tables["Out-of-domain accuracy", "last"][1][1] == "50.0"


def test_confusions_add_up_over_seeds_and_calibration_is_the_records(
    make_run, studies, read_tables, report
) -> None:
    first = Calibration(images=(4, 6), confidence=(1.6, 5.4), correct=(2, 5))
    second = Calibration(images=(4, 6), confidence=(1.6, 5.4), correct=(4, 6))
    confusions = ([[4, 1], [2, 3]], [[5, 0], [0, 5]])
    for seed, (confusion, bins) in enumerate(zip(confusions, (first, second), strict=True)):
        each = DomainResult.counted(np.array(confusion), bins)
        results = {"source": RuleResult(step=1, views={"out_of_domain": {"sketch": each}})}
        make_run("aggregate", {"sketch": 0.7}, seed=seed, results=results)
    study = studies()[0]
    ((_, _, _, confusion),) = pool(study, "source")
    assert confusion.tolist() == [[9, 1], [2, 8]]
    assert shares(confusion).tolist() == [[0.9, 0.1], [0.2, 0.8]]
    (found,) = reliabilities(study, "source")
    assert (found.error, found.after) == (pytest.approx((0.08 + 0.3) / 2), None)
    values = 'data-values="[[0.4,0.75,8],[0.9,0.9167,12]]"'
    assert f'{values} data-label="aggregate, ECE 19.0 %"' in report()
    tables = read_tables()
    assert tables["Expected calibration error", "source"][1] == ["aggregate", "19.0"]
    weakest = ["aggregate", "sketch", "house", "80%", "10", "dog (20%)"]
    assert tables["Weakest classes", "source"][1] == weakest


def test_calibration_before_and_after_in_and_out_of_domain(make_run, read_tables, report) -> None:
    def domain(before: float, after: float) -> DomainResult:
        bins = [
            Calibration(images=(10,), confidence=(6 + 10 * error,), correct=(6,))
            for error in (before, after)
        ]
        return DomainResult.counted(np.array([[6, 4], [0, 0]]), *bins)

    inside = {"photo": domain(0.2, 0.04), "art": domain(0.1, 0.02)}
    views = {"out_of_domain": {"sketch": domain(0.2, 0.3)}, "in_domain": inside}
    rule = RuleResult(step=1, views=views, temperature=1.5)
    make_run("aggregate", {"sketch": 0.6}, results={"source": rule})
    tables = read_tables()
    rows = tables["Expected calibration error", "source"]
    assert rows == [["method", "sketch", "in domain"], ["aggregate", "20.0 → 30.0", "15.0 → 3.0"]]
    assert "Scaling made it worse: aggregate on sketch (20.0 → 30.0)." in report()


def test_a_class_without_images_has_no_share() -> None:
    assert np.isnan(shares(np.array([[0, 0], [1, 3]]))[0]).all()


def test_classes_that_the_model_does_not_know_are_not_its_weakest(make_run, read_tables) -> None:
    each = counted([[9, 1, 0], [5, 5, 0], [2, 2, 0]])
    results = {"source": RuleResult(step=1, views={"out_of_domain": {"sketch": each}})}
    make_run("aggregate", {"sketch": 0.5}, results=results)
    (_, row) = read_tables()["Weakest classes", "source"]
    assert row == ["aggregate", "sketch", "house", "50%", "10", "dog (50%)"]
