"""Pages by another metric, and where nothing beats the largest class."""

from pathlib import Path

from tests.made_results import counted, made_result
from tests.reports.conftest import write_run

from unseen.reports.page.write import write_report
from unseen.results.result import RuleResult, RunResult

# 80 dogs and 20 houses: recall 70/80 and 2/20; 72 % are right, balanced accuracy 48.75 %
BLIND = counted([[70, 10], [18, 2]])
# recall 56/80 and 14/20: 70 % are right, and so is the balanced accuracy
FAIR = counted([[56, 24], [6, 14]])


def skewed(method: str, measured, **changed) -> RunResult:
    views = {"out_of_domain": {"sketch": measured}}
    rules = {"source": RuleResult(step=200, views=views)}
    return made_result(method, {"sketch": 0.0}, results=rules, **changed)


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
