"""The page as a whole: what is in it, what happens to odd folders, what single methods and others'
publications add, and what it is made of."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.work import counted

from unseen.audit.findings import AuditReport, Example, Finding
from unseen.errors import SettingsError, UnseenError
from unseen.reports.page.classes import feature_map
from unseen.reports.page.results import PublishedNumber, by_source, published_numbers
from unseen.results.rules import DRAW_RULES
from unseen.settings import catalog

HOSTILE = "<script>alert('domain')</script>"
LOG = [{"step": s, "loss": 2 / s, "accuracy": 0.5, "lr": 0.1} for s in range(1, 200)]


def evaluation(step: int, **statistics: Any) -> dict[str, Any]:
    validation = {"photo": 0.7, "cartoon": 0.6}
    return {"step": step, "validation": validation, "statistics": statistics}


def test_the_page_stands_alone(make_run, report) -> None:
    """No address but data: ones and anchors; a policy that forbids requests; one script."""
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG, evaluation(100)])
    page = report()
    addresses = re.findall(r'(?:src|href|action|poster|srcset)="([^"]*)"', page)
    assert addresses
    assert all(each.startswith(("data:", "#")) for each in addresses)
    assert not [part for part in ("url(", "@import") if part in page]
    assert "default-src 'none'" in page
    assert page.count("<script>") == 1


def test_hostile_names_are_text(make_run, report, tmp_path) -> None:
    classes = ["<img src=x onerror=alert(1)>", '" onload="alert(1)']
    log = [{"step": 1, "<i>loss</i>": 1.0}]
    make_run("my:<b>Method</b>", {HOSTILE: 0.6}, {"photo": 0.9}, classes=classes, metrics=log)
    page = report()
    for part in (HOSTILE, "<b>Method", "<img src=x", '" onload="alert', "<i>loss"):
        assert part not in page
    assert "&lt;script&gt;alert(&#39;domain&#39;)&lt;/script&gt;" in page
    names = (HOSTILE, "<b>.png")
    finding = Finding("copies", 1, "<i>Alike.", (Example(HOSTILE, (0, 1)), Example("<u>", ())))
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    prepared: Any = SimpleNamespace(index=SimpleNamespace(names=names), batch=lambda _: images)
    audit = AuditReport("<i>data", names, (finding,), ("a", "a"), ("copies",))
    audit.write_page(prepared, tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert not [part for part in (HOSTILE, "<b>.png", "<i>", "<u>") if part in page]
    assert "&lt;b&gt;.png" in page


def test_runs_under_way_have_curves_and_a_state(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG[:50], evaluation(100)], finished=False)
    page = report()
    for text in ("No run has finished yet", "step 100 of 300", "photo, sketch unseen"):
        assert text in page
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


def test_mistakes_of_the_user_are_explained(make_run, report, tmp_path) -> None:
    with pytest.raises(UnseenError, match="is not a folder"):
        report()
    (tmp_path / "runs").mkdir()
    with pytest.raises(UnseenError, match="there are no runs below"):
        report()
    make_run("aggregate", {"sketch": 0.6})
    with pytest.raises(SettingsError, match="did you mean 'last'"):
        report(rule="lost")
    with pytest.raises(UnseenError, match="no run recorded the selection rule 'oracle'"):
        report(rule="oracle")
    assert 'value="last" checked' in report(rule="last")
    (make_run("dmg", {"sketch": 0.6}) / "result.json").write_text("{")
    page = report()
    assert 'value="source" checked' in page
    assert "Runs that could not be read and are left out" in page
    assert "result.json is damaged" in page
    assert "aggregate on unseen domains" in page


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (("overlap_weight",), ["dmg overlap_weight=0.1", "dmg overlap_weight=0.5"]),
        (("overlap_weight", "a", "b"), ["dmg 1", "dmg 2"]),
    ],
)
def test_rows_are_called_by_recipe_and_forms_of_one_are_told_apart(
    make_run, studies, settings, names
) -> None:
    """By their settings, as long as a table has room for them."""
    for weight in (0.1, 0.5):
        own = dict.fromkeys(settings, weight)
        make_run("dmg", {"sketch": weight}, run=f"dmg-{weight}", settings=own)
    make_run("aggregate", {"sketch": 0.4}, recipe="aggregate_views")
    make_run("mldg", {"sketch": 0.4}, recipe="mldg_views", finished=False)
    rows = [row for row, _ in studies()[0].rows]
    assert sorted(rows) == ["aggregate_views", *names, "mldg_views"]
    assert rows[0] == "aggregate_views"


def test_datasets_and_metrics_have_chapters_of_their_own(make_run, studies, report) -> None:
    make_run("dmg", {"sketch": 0.6})
    make_run("dmg", {"sketch": 0.7}, seed=1)
    make_run("dmg", {"mnist_m": 0.5}, {"mnist": 0.9}, dataset="mnist")
    assert [study.dataset for study in studies()] == ["pacs", "mnist"]
    assert report().count("<h1>") == 2  # the first chapter's conclusion under each of two rules
    make_run("mldg", {"sketch": 0.6}, metric="balanced")
    assert report().count("<article") == 3
    together = report(metric="balanced")
    assert together.count("<article") == 2
    assert "Checkpoints were chosen by different metrics" in together


def test_columns_are_in_the_order_of_the_dataset(make_run, studies) -> None:
    order = ("plain", "blended", "coloured")
    for unseen in ("coloured", "plain", "blended"):
        make_run("dmg", {unseen: 0.5}, {name: 0.5 for name in order if name != unseen})
    assert studies()[0].columns == order


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
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG, evaluation(100)])
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


def test_masks_and_weights_of_images_follow_from_what_methods_record(make_run, report) -> None:
    shares = {"soft": 0.55, "hard": 0.75}
    fc = {"kept": {"photo": shares, "cartoon": shares}, "iou": {"photo|cartoon": shares}}
    probs = np.array([[0.7, 0.6, 0.2, 0.1], [0.9, 0.4, 0.3, 0.8]], np.float32)
    own: dict[str, Any] = {"metrics": [evaluation(200, fc=fc)], "arrays": {"mask.fc": probs}}
    make_run("dmg", {"sketch": 0.6}, **own)
    weights = evaluation(200, auc=0.875, effective_sample_size=1234.0)
    make_run("reweighting", {"sketch": 0.6}, metrics=[weights])
    page = report()
    for text in (
        "4 units: in all domains 25 %, some 0 %, one 50 %, none 25 %",
        *("1 units in photo only", "Sample re-weighting", "0.875", "1,234"),
    ):
        assert text in page


def test_importance_runs_have_grids_and_a_summary(make_run, report, tmp_path: Path) -> None:
    make_run("dmg", {"sketch": 0.6})
    report()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]
    layer = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    arrays = {
        "initial/layer2": layer,
        "initial/layer3": layer / 2,
        "mask/layer2": layer > 0,
        "final/photo/layer2": layer,
        "importance/photo/layer2": np.abs(layer),
        "mask/photo/layer2": layer > 0.5,
    }
    make_run("importance", {"sketch": 0.6}, settings={"phase_share": 0.5}, arrays=arrays)
    page = report()
    for title in ("initial weights, layer2", "initial weights, layer3", "mask of phase 2, layer2",
                  "Trained on photo alone", "binary mask, layer2"):  # fmt: skip
        assert title in page
    summary = (tmp_path / "out" / "summary_report.txt").read_text(encoding="utf-8")
    assert "mask/photo/layer2 (3 × 3): 22.2 % important" in summary
    assert "initial/layer3 (3 × 3): mean 0.0000, lowest -0.5000, highest 0.5000" in summary


def test_a_map_shows_the_first_two_components() -> None:
    """They are stored by falling variance; the longer direction fills the square."""
    values = np.array([[-4.0, 1.0, 9.0], [4.0, -1.0, 9.0], [0.0, 0.0, -9.0]])
    places = feature_map(values)
    assert places == pytest.approx(np.array([[0, 0.625], [1, 0.375], [0.5, 0.5]]))
    assert feature_map(values[:, :1])[:, 1] == pytest.approx(0.5)


def test_every_published_number_has_its_source() -> None:
    numbers = published_numbers()
    assert len(numbers) > 300
    assert len({each[:3] + each[5:] for each in numbers}) == len(numbers)
    for each in numbers:
        assert each.source
        assert 0 < each.accuracy < 100
        assert each.dataset in catalog.DATASETS
        assert each.rule in {*DRAW_RULES, ""}
        assert each.method == each.method.strip()


def domainbed(dataset: str, rule: str) -> dict[str, PublishedNumber]:
    """What DomainBed reports, by method."""
    return {
        each.method: each
        for (source, chosen), numbers in by_source(dataset).items()
        for each in numbers
        if chosen == rule and source.startswith("DomainBed")
    }


@pytest.mark.parametrize(
    ("method", "dataset", "rule", "accuracy"),
    [
        ("aggregate", "pacs", "source", 85.5),
        ("aggregate", "colored_mnist", "source", 51.5),
        ("aggregate", "rotated_mnist", "source", 98.0),
        ("coral", "domainnet", "source", 41.5),
        ("aggregate", "pacs", "leave-one-domain-out", 83.0),
        ("aggregate", "terra_incognita", "oracle", 53.0),
    ],
)
def test_numbers_of_domainbed(method: str, dataset: str, rule: str, accuracy: float) -> None:
    assert domainbed(dataset, rule)[method].accuracy == accuracy


@pytest.mark.parametrize("name", ["irm", "vrex", "groupdro", "mixup", "cdann", "coral"])
def test_pages_of_methods_quote_them(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "methods" / f"{name}.md"
    words, numbers = " ".join(page.read_text(encoding="utf-8").split()), domainbed("pacs", "source")
    own, baseline = (f"{numbers[each].accuracy:.1f}" for each in (name, "aggregate"))
    assert own in words.partition("DomainBed")[2]
    assert f"baseline {baseline}" in words


def test_published_numbers_stand_beside_own_ones_of_one_kind_never_among_them(
    make_run, studies, report
) -> None:
    make_run("dmg", {"sketch": 0.7, "photo": 0.8}, {"cartoon": 0.8})
    assert "out of domain, published" not in report()
    make_run("dmg", {"sketch": 0.7}, {"photo": 0.8})
    page = report()
    assert "out of domain, published" in page
    assert "a reference, not a comparison" in page
    for study in studies():
        rows = {row.method for table in study.built_tables("source") for row in table.rows}
        assert rows == {"dmg"}
