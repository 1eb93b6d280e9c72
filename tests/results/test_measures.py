"""Metrics of a confusion matrix against values worked out by hand."""

from pathlib import Path

import numpy as np
import pytest
from tests.made_results import counted, made_result

from unseen.results import result as records
from unseen.results.folder import RunFolder
from unseen.results.result import (
    RuleResult,
    RunResult,
    always_largest,
    balanced_accuracy,
    macro_f1,
    write_result,
)

# 60 of 70, 6 of 20 and 1 of 10 recognised; nothing is known about the fourth class, but three
# images are called it.
SKEWED = [[60, 6, 2, 2], [13, 6, 0, 1], [8, 1, 1, 0], [0, 0, 0, 0]]


def test_every_class_counts_the_same_in_balanced_accuracy() -> None:
    measured = counted(SKEWED)
    assert measured.accuracy == 67 / 100
    assert measured.balanced_accuracy == pytest.approx((60 / 70 + 6 / 20 + 1 / 10) / 3)
    assert measured.measure("balanced") == measured.balanced_accuracy


def test_macro_f1_is_the_mean_of_twice_the_right_ones_by_images_and_answers() -> None:
    """Answers: 81 times the first class, 13 the second, 3 the third."""
    expected = (2 * 60 / (70 + 81) + 2 * 6 / (20 + 13) + 2 * 1 / (10 + 3)) / 3
    assert counted(SKEWED).macro_f1 == counted(SKEWED).measure("macro_f1")
    assert counted(SKEWED).macro_f1 == pytest.approx(expected)


def test_a_class_that_is_never_answered_has_f1_zero() -> None:
    assert macro_f1(np.array([[3, 0], [1, 0]])) == pytest.approx(2 * 3 / (3 + 4) / 2)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("accuracy", 70 / 100), ("balanced", 1 / 3), ("macro_f1", 2 * 70 / (70 + 100) / 3)],
)
def test_what_always_the_largest_class_gets(metric, expected: float) -> None:
    assert counted(SKEWED).always_largest(metric) == pytest.approx(expected)
    assert counted(SKEWED).largest_class_share == 70 / 100
    assert always_largest(np.array(SKEWED)).sum(axis=0).tolist() == [100, 0, 0, 0]


def test_formulas_agree_with_scikit_learn() -> None:
    from sklearn.metrics import balanced_accuracy_score, f1_score

    draws = np.random.default_rng(0)
    true, called = draws.choice(5, 400, p=[0.6, 0.2, 0.1, 0.07, 0.03]), draws.integers(0, 5, 400)
    called = np.where(draws.random(400) < 0.6, true, called)
    confusion = np.zeros((5, 5), dtype=np.int64)
    np.add.at(confusion, (true, called), 1)
    assert balanced_accuracy(confusion) == pytest.approx(balanced_accuracy_score(true, called))
    assert macro_f1(confusion) == pytest.approx(f1_score(true, called, average="macro"))


def skewed_result(**changed) -> RunResult:
    views = {"out_of_domain": {"sketch": counted(SKEWED)}}
    rules = {"source": RuleResult(step=1, views=views)}
    return made_result("dmg", {"sketch": 0.0}, results=rules, **changed)


def test_measures_are_written_and_counts_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_result(tmp_path / "result.json", skewed_result(metric="balanced"))
    text = (tmp_path / "result.json").read_text()
    assert '"balanced_accuracy": 0.419' in text
    assert '"largest_class_share": 0.7' in text
    found = RunFolder(tmp_path).read_result()
    read, times = records.read_array, []
    monkeypatch.setattr(records, "read_array", lambda *own: times.append(own) or read(*own))
    for _ in range(3):
        assert found.mean("source", "out_of_domain") == pytest.approx(0.4190476)
        assert found.mean("source", "out_of_domain", "accuracy") == 0.67
    assert len(times) == 1
