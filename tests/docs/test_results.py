"""Results stand in several places and are the same in all of them, as measured: tables, and the
curve of DMG against aggregate."""

import csv
import json
import re
from pathlib import Path

import pytest
from docs.generators.dmg_curve import Point, figure, read_points, with_earlier, write_curve
from docs.generators.result_tables import read_numbers, result_pages
from tests.docs.markdown_files import ROOT
from tests.made_results import made_result

from unseen.errors import UnseenError
from unseen.results.files import FORMAT
from unseen.results.folder import RunFolder

DEMO = ("aggregate", "multihead", "dmg")
DOMAINS = {"sketch": 0.5, "cartoon": 0.7}
GAINS = {(0.1, 300): (0.02, 0.04), (0.1, 600): (0.06, 0.06), (1.0, 300): (-0.03, -0.01)}
"""By share and steps: what each of two seeds gains on every domain."""


def test_pages_have_the_stored_numbers_and_the_demo_has_intervals() -> None:
    pages = result_pages(ROOT)
    assert ROOT / "README.md" in pages
    assert [page for page, text in pages.items() if page.read_text(encoding="utf-8") != text] == []
    numbers = read_numbers(ROOT / "docs/results/digits.csv")
    assert all(" ± " in text for name in DEMO for text in numbers[name].values())


def make_project(root: Path, block: str) -> Path:
    """A README with this block, and a table of results for it."""
    stored = root / "docs" / "results" / "digits.csv"
    stored.parent.mkdir(parents=True)
    header = "dataset,view,rule,method,backbone,quantity,column,mean,half_width,n,planned\n"
    lines = [
        f"digits,out_of_domain,source,{name},small_cnn,{line}\n"
        for name in DEMO
        for line in ("accuracy,plain,91.26,0.44,3,3", "overall,overall,80,,1,3")
    ]
    lines.append(lines[0].split("accuracy")[0] + "difference,difference to x,0.04,1,3,3\n")
    stored.write_text(header + "".join(lines), encoding="utf-8")
    (stored.parent / "curve.csv").write_text("share,steps\n0.1,300\n", encoding="utf-8")
    text = f"before\n{block}\nold\n<!-- end of results -->\nafter\n"
    (root / "README.md").write_text(text, encoding="utf-8")
    return root / "README.md"


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (
            "digits: dmg, aggregate",
            {
                "": ["plain", "overall", "difference to x"],
                "dmg": ["91.3 ± 0.4", "80.0", ""],
                "aggregate": ["91.3 ± 0.4", "80.0", "+0.0 ± 1.0"],
            },
        ),
        ("digits: dmg | overall", {"": ["overall"], "dmg": ["80.0"]}),
    ],
)
def test_numbers_come_from_the_stored_table(
    tmp_path: Path, wanted: str, rows: dict[str, list[str]]
) -> None:
    readme = make_project(tmp_path, f"<!-- results {wanted} -->")
    before, table, after = re.split(r"<!-- .* -->\n", result_pages(tmp_path)[readme])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert {row[0]: row[1:] for row in cells if not row[0].startswith("---")} == rows
    assert (before, after) == ("before\n", "after\n")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("<!-- results letters -->", "no docs/results/letters.csv"),
        ("<!-- results digits: dgm -->", "digits.csv has no row dgm"),
        ("<!-- results digits | over -->", "digits.csv has no column over"),
    ],
)
def test_a_table_that_is_not_there_is_named(tmp_path: Path, block: str, message: str) -> None:
    make_project(tmp_path, block)
    with pytest.raises(SystemExit, match=message):
        result_pages(tmp_path)


def write_run(
    runs: Path, method: str, domain: str, accuracy: float, place: tuple[float, int, int], **own: str
) -> None:
    """A finished run; `place` is its share of the images, its steps and its seed."""
    share, steps, seed = place
    settings = {"name": method, **own}
    folder = RunFolder(runs / "-".join([*settings.values(), domain, *map(str, place)]))
    folder.path.mkdir(parents=True)
    data = {"name": "pacs", "share": share}
    folder.settings.write_text(json.dumps({"format": FORMAT, "data": data, "method": settings}))
    folder.write_result(made_result(method, {domain: accuracy}, seed=seed, steps=steps))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for key, gains in GAINS.items():
        for seed, gain in enumerate(gains):
            for domain, accuracy in DOMAINS.items():
                level = accuracy + 0.1 * seed
                write_run(runs, "aggregate", domain, level, (*key, seed))
                write_run(runs, "dmg", domain, level + gain, (*key, seed))
    write_run(runs, "aggregate", "sketch", 0.5, (0.5, 300, 0))  # alone: no point
    write_run(runs, "mldg", "sketch", 0.9, (0.5, 300, 0))
    return runs


def test_differences_are_paired_by_seed(runs: Path) -> None:
    points = read_points(runs)
    assert [(each.share, each.steps, each.seeds) for each in points] == [(*k, 2) for k in GAINS]
    # seeds 2 and 4: deviation √2, and t of one degree of freedom is 12.706
    assert points[0][2:6] == pytest.approx((65, 68, 3, 12.706), rel=1e-3)
    assert points[1].half_width == pytest.approx(0, abs=1e-6)
    assert points[2].difference == pytest.approx(-2)


def test_a_domain_that_is_missing_leaves_its_seed_out(runs: Path) -> None:
    RunFolder(runs / "dmg-sketch-0.1-300-1").result.unlink()
    first = read_points(runs)[0]
    assert (first.seeds, first.half_width) == (1, None)
    assert (first.reference, first.difference) == (pytest.approx(60), pytest.approx(2))
    write_run(runs.parent / "alone", "dmg", "sketch", 0.5, (1, 300, 0))
    with pytest.raises(UnseenError, match="no finished runs of aggregate and dmg"):
        read_points(runs.parent / "alone")


def test_controls_are_not_the_method(runs: Path) -> None:
    before = read_points(runs)
    for domain in DOMAINS:
        for masks in ("shared", "dropout"):
            write_run(runs, "dmg", domain, 0.1, (0.1, 300, 0), masks=masks)
    assert read_points(runs) == before
    for domain in DOMAINS:
        write_run(runs, "dmg", domain, 0.1, (0.1, 300, 2), masks="domain")
        write_run(runs, "aggregate", domain, 0.2, (0.1, 300, 2))
    assert read_points(runs)[0].seeds == 3


def test_the_curve_is_written_as_numbers_and_figure(runs: Path, tmp_path: Path) -> None:
    points = read_points(runs)
    into = tmp_path / "new" / "results"
    written = write_curve(points, into)
    names = ["dmg_curve.csv", "dmg_curve.svg"]
    assert sorted(written) == sorted(into.iterdir()) == [into / name for name in names]
    with (into / "dmg_curve.csv").open(encoding="utf-8", newline="") as file:
        header, _, second, *_ = csv.reader(file)
    assert header == ["share", "steps", "aggregate", "dmg", "difference", "half_width", "seeds"]
    assert second == ["0.1", "600", "65.00", "71.00", "6.00", "0.00", "2"]
    panels = figure(points).panels
    shares = ["10 % of the images", "all images"]
    assert [panel.title for panel in panels] == [f"dmg − aggregate, {share}" for share in shares]
    assert panels[0].content.count('class="whisker own"') == 2  # an interval for each length
    assert shares[0] in (into / "dmg_curve.svg").read_text(encoding="utf-8")


def test_points_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    short = Point(0.1, 300, 50.0, 52.0, 2.0, None, 1)
    long = Point(0.1, 2500, 51.0, 54.0, 3.0, 0.5, 3)
    write_curve([short], tmp_path)
    assert with_earlier([long], tmp_path) == [short, long]
    again = short._replace(method=53.5, difference=3.5)
    assert with_earlier([again, long], tmp_path) == [again, long]
    assert with_earlier([long], tmp_path / "elsewhere") == [long]
