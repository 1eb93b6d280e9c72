"""Tables and pages by another metric, and what always the largest class would get."""

from pathlib import Path

import pytest
from tests.made_results import counted, made_result
from tests.reports.conftest import write_run

from unseen.errors import UnseenError
from unseen.reports.formats import to_csv
from unseen.reports.page.write import write_report
from unseen.reports.tables import build_tables
from unseen.results.result import RuleResult, RunResult

# 80 dogs and 20 houses: recall 70/80 and 2/20; 72 % are right, balanced accuracy 48.75 %
BLIND = counted([[70, 10], [18, 2]])
# recall 56/80 and 14/20: 70 % are right, and so is the balanced accuracy
FAIR = counted([[56, 24], [6, 14]])


def skewed(method: str, measured, **changed) -> RunResult:
    views = {"out_of_domain": {"sketch": measured}}
    rules = {"source": RuleResult(step=200, views=views)}
    return made_result(method, {"sketch": 0.0}, results=rules, **changed)


def numbers(table) -> dict[str, float]:
    return {row.name: round(row.cells[0].estimate.mean, 2) for row in table.lines}


def test_another_metric_turns_the_order_round_and_has_its_own_floor() -> None:
    results = [skewed("blind", BLIND), skewed("fair", FAIR)]
    (by_accuracy,) = build_tables(results, "source")
    assert numbers(by_accuracy) == {"blind": 72.0, "fair": 70.0, "largest class": 80.0}
    (balanced,) = build_tables(results, "source", metric="balanced")
    assert numbers(balanced) == {"blind": 48.75, "fair": 70.0, "largest class": 50.0}
    assert balanced.title.startswith("Out-of-domain balanced accuracy (%)")
    assert "Checkpoints were chosen by accuracy, not by balanced accuracy." in balanced.notes
    assert {line.rsplit(",", 1)[1] for line in to_csv(balanced).splitlines()[1:]} == {"balanced"}
    best = [[cell.best for cell in row.cells if cell] for row in balanced.rows]
    assert best == [[False, False], [True, True, True]]
    (f1,) = build_tables(results[:1], "source", metric="macro_f1")
    assert numbers(f1)["largest class"] == round(100 * 2 * 80 / 180 / 2, 2)


def test_a_run_that_was_chosen_by_its_metric_is_shown_by_it() -> None:
    (table,) = build_tables([skewed("fair", FAIR, metric="balanced")], "source")
    assert table.metric == "balanced"
    assert table.notes[0] == (
        "Selection rule source: best mean validation balanced accuracy over the training domains, "
        "lowest validation loss on ties."
    )


def test_runs_of_different_metrics_are_in_one_table_only_if_asked() -> None:
    results = [skewed("blind", BLIND), skewed("fair", FAIR, metric="balanced")]
    with pytest.raises(UnseenError, match=r"different metrics \(accuracy, balanced\).*--metric"):
        build_tables(results, "source")
    (table,) = build_tables(results, "source", metric="macro_f1")
    assert (
        "Checkpoints were chosen by different metrics (accuracy: blind; balanced accuracy: fair)."
        in table.notes
    )


def test_the_page_says_so_where_nothing_beats_the_largest_class(tmp_path: Path) -> None:
    for result in (skewed("aggregate", BLIND), skewed("dmg", FAIR)):
        write_run(tmp_path / "runs", result)
    page = write_report(tmp_path / "runs", tmp_path / "out").read_text()
    assert "not better than always answering with the largest class of each domain" in page
    assert "(80.0 %)" in page
    fair = write_report(tmp_path / "runs", tmp_path / "out", metric="balanced").read_text()
    assert "70.0 % balanced accuracy (on sketch)" in fair
    assert "not better than always answering" not in fair
    assert "Balanced accuracy by held-out domain" in fair


def test_runs_of_different_metrics_have_chapters_of_their_own(tmp_path: Path) -> None:
    for result in (skewed("aggregate", BLIND), skewed("dmg", FAIR, metric="balanced")):
        path = write_run(tmp_path / "runs", result)
        text = (path / "settings.json").read_text()
        (path / "settings.json").write_text(text[:-1] + f', "metric": "{result.metric}"}}')
    page = write_report(tmp_path / "runs", tmp_path / "out").read_text()
    assert page.count("<article") == 2
    together = write_report(tmp_path / "runs", tmp_path / "out", metric="balanced").read_text()
    assert together.count("<article") == 1
    assert "Checkpoints were chosen by different metrics" in together
