"""The page as a whole: what is in it, what happens to odd folders, and what it is made of."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.work import counted

from unseen.audit.findings import AuditReport, Example, Finding
from unseen.errors import SettingsError, UnseenError

HOSTILE = "<script>alert('domain')</script>"
LOG = [{"step": s, "loss": 2 / s, "accuracy": 0.5, "lr": 0.1} for s in range(1, 200)]
EVALUATION = {"step": 100, "validation": {"photo": 0.7, "cartoon": 0.6}, "statistics": {}}


def test_the_page_stands_alone(make_run, report) -> None:
    """No address but data: ones and anchors; a policy that forbids requests; one script."""
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG, EVALUATION])
    page = report()
    addresses = re.findall(r'(?:src|href|action|poster|srcset)="([^"]*)"', page)
    assert addresses
    assert all(each.startswith(("data:", "#")) for each in addresses)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert page.count("<script>") == 1


def test_hostile_names_are_text(make_run, report) -> None:
    classes = ["<img src=x onerror=alert(1)>", '" onload="alert(1)']
    log = [{"step": 1, "<i>loss</i>": 1.0}]
    make_run("my:<b>Method</b>", {HOSTILE: 0.6}, {"photo": 0.9}, classes=classes, metrics=log)
    page = report()
    for part in (HOSTILE, "<b>Method", "<img src=x", '" onload="alert', "<i>loss"):
        assert part not in page
    assert "&lt;script&gt;alert(&#39;domain&#39;)&lt;/script&gt;" in page


def test_hostile_names_are_text_on_the_page_of_an_audit(tmp_path) -> None:
    names = (HOSTILE, "<b>.png")
    finding = Finding("copies", 1, "<i>Alike.", (Example(HOSTILE, (0, 1)), Example("<u>", ())))
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    prepared: Any = SimpleNamespace(index=SimpleNamespace(names=names), batch=lambda _: images)
    report = AuditReport("<i>data", names, (finding,), ("a", "a"), ("copies",))
    report.write_page(prepared, tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert not [part for part in (HOSTILE, "<b>.png", "<i>", "<u>") if part in page]
    assert "&lt;b&gt;.png" in page


def test_runs_under_way_have_curves_and_a_state(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG[:50], EVALUATION], settings={"finished": False})
    page = report()
    assert "No run has finished yet" in page
    assert "step 100 of 300" in page
    assert "photo, sketch unseen" in page
    assert "dmg from 2 to 0.04" in page  # what a curve tells those who do not see it


def test_of_many_rows_figures_show_the_baseline_and_the_best(make_run, studies, report) -> None:
    """Tables have them all; a page with the curves of 2,000 runs could not be opened."""
    for number in range(30):
        log = [{"step": step, "loss": 1.0} for step in (1, 2)]
        about = {"recipe": f"r{number}", "run": f"{number}", "metrics": log}
        make_run("aggregate", {"sketch": 0.3 + number / 100}, **about)
    (study,) = studies()
    names = [study.row_name(row) for row in study.rows]
    assert names == ["r0", *(f"r{number}" for number in range(29, 0, -1))]
    page = report()
    assert "Figures show r0 and the 11 best of the other 29 rows" in page
    curves = set(re.findall(r'data-label="(r\d+)"', page))
    assert curves == {"r0", *(f"r{number}" for number in range(19, 30))}
    assert page.count("</i>r7</th>") == 6, "three tables under two rules"


def test_a_damaged_run_is_named_and_hides_no_other(make_run, report) -> None:
    make_run("aggregate", {"sketch": 0.6})
    broken = make_run("dmg", {"sketch": 0.6})
    (broken / "result.json").write_text("{")
    page = report()
    assert "Runs that could not be read and are left out" in page
    assert "result.json is damaged" in page
    assert "aggregate on unseen domains" in page


def test_mistakes_of_the_user_are_explained(make_run, report, tmp_path) -> None:
    with pytest.raises(UnseenError, match="is not a folder"):
        report()
    (tmp_path / "runs").mkdir()
    with pytest.raises(UnseenError, match="there are no runs below"):
        report()
    make_run("dmg", {"sketch": 0.6})
    with pytest.raises(SettingsError, match="did you mean 'last'"):
        report(rule="lost")
    with pytest.raises(UnseenError, match="no run recorded the selection rule 'oracle'"):
        report(rule="oracle")
    assert 'value="source" checked' in report()
    assert 'value="last" checked' in report(rule="last")


def test_rows_are_called_by_their_recipe(make_run, studies) -> None:
    make_run("aggregate", {"sketch": 0.4}, recipe="aggregate_views")
    ahead = make_run("dmg", {"sketch": 0.4}, settings={"finished": False})
    settings = json.loads((ahead / "settings.json").read_text())
    (ahead / "settings.json").write_text(json.dumps(settings | {"recipe": "dmg_views"}))
    (study,) = studies()
    assert [row for row, _ in study.rows] == ["aggregate_views", "dmg_views"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (("overlap_weight",), ["dmg overlap_weight=0.1", "dmg overlap_weight=0.5"]),
        (("overlap_weight", "a", "b"), ["dmg 1", "dmg 2"]),
    ],
)
def test_forms_of_one_recipe_are_told_apart(make_run, studies, settings, names) -> None:
    """By their settings, as long as a table has room for them."""
    for weight in (0.1, 0.5):
        own = dict.fromkeys(settings, weight)
        make_run("dmg", {"sketch": weight}, run=f"dmg-{weight}", settings=own)
    make_run("aggregate", {"sketch": 0.4})
    assert [row for row, _ in studies()[0].rows] == ["aggregate", *names]


def test_datasets_have_chapters_of_their_own(make_run, studies, report) -> None:
    make_run("dmg", {"sketch": 0.6})
    make_run("dmg", {"sketch": 0.7}, seed=1)
    make_run("dmg", {"mnist_m": 0.5}, {"mnist": 0.9}, dataset="mnist")
    assert [study.dataset for study in studies()] == ["pacs", "mnist"]
    page = report()
    assert page.count("<article") == 2
    assert page.count("<h1>") == 2  # the first chapter's conclusion under each of two rules


def test_metrics_have_chapters_of_their_own_unless_one_is_asked_for(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.6})
    path = make_run("mldg", {"sketch": 0.6}, metric="balanced")
    settings = json.loads((path / "settings.json").read_text())
    (path / "settings.json").write_text(json.dumps(settings | {"metric": "balanced"}))
    assert report().count("<article") == 2
    together = report(metric="balanced")
    assert together.count("<article") == 1
    assert "Checkpoints were chosen by different metrics" in together


def test_columns_are_in_the_order_of_the_dataset(make_run, studies) -> None:
    order = ("plain", "blended", "coloured")
    for unseen in ("coloured", "plain", "blended"):
        make_run("dmg", {unseen: 0.5}, {name: 0.5 for name in order if name != unseen})
    (study,) = studies()
    assert study.columns == order


def test_what_is_not_a_number_leaves_no_hole_in_the_page(make_run, report) -> None:
    losses = (float("nan"), 3.0, 1e30)
    broken = [{"step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]
    make_run("dmg", {"sketch": 0.6}, metrics=broken)
    page = report()
    assert "NaN" not in page
    assert "nan" not in re.sub(r"<script>.*</script>", "", page, flags=re.S).lower().split()


def test_figures_are_written_for_a_paper(make_run, report, tmp_path) -> None:
    for method in ("aggregate", "dmg"):
        make_run(method, {"sketch": 0.6}, rules=("source",), metrics=LOG)
    report(figures=True)
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    for stem in ("accuracy_source", "differences_source", "curve_loss"):
        assert {f"{stem}.{kind}" for kind in ("png", "svg", "pdf")} <= names


def test_a_hundred_runs_take_seconds(make_run, report) -> None:
    log = [{"step": s, "loss": 1 / s, "task": 0.4, "accuracy": 0.5} for s in range(1, 2000)]
    for method in ("aggregate", "multihead", "dmg", "mldg", "dann"):
        for seed in range(5):
            for unseen in ("photo", "sketch", "cartoon", "art"):
                make_run(method, {unseen: 0.5}, {"other": 0.5}, seed=seed, metrics=log)
    with counted() as work:
        page = report()
    assert work.calls < 20_000_000
    assert len(page) < 6_000_000


def test_no_torch_is_loaded(make_run, tmp_path) -> None:
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG, EVALUATION])
    code = (
        "import sys\n"
        "from unseen.cli.main import main\n"
        "try:\n"
        f"    main(['report', {str(tmp_path / 'runs')!r}])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "assert not [m for m in ('torch', 'sklearn', 'typst') if m in sys.modules]\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip().endswith("report.html")
    assert (tmp_path / "runs" / "report" / "report.html").is_file()
