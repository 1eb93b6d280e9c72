"""The page as a whole: what is in it, what happens to odd folders, and what it is made of."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.work import counted

from unseen.errors import SettingsError, UnseenError
from unseen.reports.figures.axes import Axis
from unseen.reports.figures.curves import Cloud, CurvePanel, Line, ScatterPanel, thinned
from unseen.reports.figures.figure import Figure, Key, write_figures
from unseen.reports.figures.grids import CirclePanel, HeatPanel, Picture, SheetPanel, StripPanel
from unseen.reports.figures.rows import Bar, BarPanel, DotPanel, DotRow, Mark
from unseen.reports.page.runs import load_runs
from unseen.reports.page.studies import make_studies
from unseen.reports.page.write import watch, write_report

HOSTILE = "<script>alert('domain')</script>"
LOG = [{"step": s, "loss": 2 / s, "accuracy": 0.5, "lr": 0.1} for s in range(1, 200)]
EVALUATION = {"step": 100, "validation": {"photo": 0.7, "cartoon": 0.6}, "statistics": {}}


@pytest.fixture
def report(tmp_path: Path):
    def write(**options) -> str:
        page = write_report(tmp_path / "runs", tmp_path / "out", **options)
        return page.read_text(encoding="utf-8")

    return write


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
    make_run(
        "my:<b>Method</b>",
        {HOSTILE: 0.6},
        {"photo": 0.9},
        classes=["<img src=x onerror=alert(1)>", '" onload="alert(1)'],
        metrics=[{"step": 1, "<i>loss</i>": 1.0}],
    )
    page = report()
    for part in (HOSTILE, "<b>Method", "<img src=x", '" onload="alert', "<i>loss"):
        assert part not in page
    assert "&lt;script&gt;alert(&#39;domain&#39;)&lt;/script&gt;" in page


def test_runs_under_way_have_curves_and_a_state(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.6}, metrics=[*LOG[:50], EVALUATION], settings={"finished": False})
    page = report()
    assert "No run has finished yet" in page
    assert "step 100 of 300" in page
    assert "Validation accuracy, photo" in page
    assert "dmg from 2 to 0.04" in page  # what a curve tells those who do not see it


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


def test_the_rule_that_is_asked_for_comes_first(make_run, report) -> None:
    make_run("dmg", {"sketch": 0.6})
    assert 'value="source" checked' in report()
    assert 'value="last" checked' in report(rule="last")


def test_forms_of_one_method_are_told_apart(make_run, tmp_path) -> None:
    for weight in (0.1, 0.5):
        name = f"dmg-{weight}"
        make_run("dmg", {"sketch": weight}, run=name, settings={"overlap_weight": weight})
    make_run("aggregate", {"sketch": 0.4})
    study = make_studies(load_runs(tmp_path / "runs")[0], None)[0]
    assert [row for row, _ in study.rows] == [
        "aggregate", "dmg overlap_weight=0.1", "dmg overlap_weight=0.5"
    ]  # fmt: skip


def test_datasets_have_chapters_of_their_own(make_run, tmp_path, report) -> None:
    make_run("dmg", {"sketch": 0.6})
    make_run("dmg", {"sketch": 0.7}, seed=1)
    make_run("dmg", {"mnist_m": 0.5}, {"mnist": 0.9}, dataset="mnist")
    studies = make_studies(load_runs(tmp_path / "runs")[0], None)
    assert [study.dataset for study in studies] == ["pacs", "mnist"]
    page = report()
    assert page.count("<article") == 2
    assert page.count("<h1>") == 2  # the first chapter's conclusion under each of two rules


def test_columns_are_in_the_order_of_the_dataset(make_run, tmp_path) -> None:
    order = ("plain", "blended", "coloured")
    for unseen in ("coloured", "plain", "blended"):
        make_run("dmg", {unseen: 0.5}, {name: 0.5 for name in order if name != unseen})
    (study,) = make_studies(load_runs(tmp_path / "runs")[0], None)
    assert study.columns == order


def test_curves_keep_their_ends_and_their_values() -> None:
    points = [(step, step / 7) for step in range(1, 1001)]
    few = thinned(points, 80)
    assert len(few) == 80
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert set(few) <= set(points)


def test_what_is_not_a_number_leaves_no_hole_in_the_page(make_run, report) -> None:
    broken = [
        {"step": 1, "loss": float("nan")},
        {"step": 2, "loss": 3.0},
        {"step": 3, "loss": 1e30},
    ]
    make_run("dmg", {"sketch": 0.6}, metrics=broken)
    page = report()
    assert "NaN" not in page
    assert "nan" not in re.sub(r"<script>.*</script>", "", page, flags=re.S).lower().split()


def test_figures_are_written_for_a_paper(make_run, report, tmp_path) -> None:
    for method in ("aggregate", "dmg"):
        make_run(method, {"sketch": 0.6}, rules=("source",), metrics=LOG)
    report(figures=True)
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    kinds = ("png", "svg", "pdf")
    for stem in ("accuracy_source", "differences_source", "gap_source", "curve_loss"):
        assert {f"{stem}.{kind}" for kind in kinds} <= names


def test_every_kind_of_panel_can_be_drawn_for_a_paper_and_again_the_same(tmp_path) -> None:
    values = np.linspace(-1, 1, 4).reshape(2, 2)
    pixels = np.zeros((8, 8, 3), np.uint8)
    axis = Axis(0, 1, "$ and _")
    every = (
        BarPanel("bars", (Bar("a", 0, 0.5, 0.1, (0.4, 0.6)),), axis),
        DotPanel("dots", (DotRow("a", 1, (Mark("m", 0.5),)),), axis, True),
        CurvePanel("curves", (Line("a", 2, ((0, 0), (1, 1)), True),), axis, axis, True),
        HeatPanel("heat", ("a", "b"), ("c", "$d"), abs(values), (("1", "$"), ("2", "3"))),
        StripPanel("strips", ("a", "b"), np.array([[1, 1], [0, 1]])),
        CirclePanel("circles", values, 1.0),
        ScatterPanel("map", (Cloud("a", 3, abs(values), True),), (Key("a", 3),)),
        SheetPanel("sheet", (Picture(pixels, "dog → house", "b"),)),
    )
    figure = Figure("all", "all", "", every, (Key("$a", 0, "dashed"),))
    for folder in ("a", "b"):
        write_figures([figure], tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["all.pdf", "all.png", "all.svg"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert "dog → house" in (tmp_path / "a" / "all.svg").read_text(encoding="utf-8")


def test_a_watched_page_is_written_when_a_run_moves_on(make_run, tmp_path) -> None:
    path = make_run("dmg", {"sketch": 0.6}, settings={"finished": False})
    written: list[str] = []
    naps = 0

    def write() -> Path:
        page = write_report(tmp_path / "runs", tmp_path / "out", refresh=7)
        written.append(page.read_text(encoding="utf-8"))
        return page

    def sleep(seconds: float) -> None:
        nonlocal naps
        naps += 1
        if naps == 2:
            with (path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": 8, "loss": 1.0}) + "\n")
        if naps == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(tmp_path / "runs", write, 1, sleep)
    assert len(written) == 2
    assert 'data-refresh="7"' in written[0]
    assert "step 8 of 300" in written[1]


def test_a_watched_folder_may_still_be_empty(tmp_path) -> None:
    (tmp_path / "runs").mkdir()
    page = write_report(tmp_path / "runs", tmp_path / "out", refresh=7)
    assert "No runs yet" in page.read_text(encoding="utf-8")


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
