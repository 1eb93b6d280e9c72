"""Results stand in several places and are the same in all of them, as measured."""

import re
from pathlib import Path

import pytest
from docs.generators.result_tables import read_numbers, result_pages

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
DEMO = ("aggregate", "multihead", "dmg")


def rows(page: str) -> dict[str, list[str]]:
    """Cells by row, of the tables that are generated."""
    tables = re.findall(r"<!-- results .*? -->\n(.*?)<!-- end of results -->", page, re.DOTALL)
    lines = [line for table in tables for line in table.splitlines()]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in cells if not row[0].startswith("---")}


def test_pages_are_as_generated() -> None:
    pages = result_pages(ROOT)
    assert ROOT / "README.md" in pages
    assert [page for page, text in pages.items() if page.read_text(encoding="utf-8") != text] == []


def test_the_demo_has_intervals() -> None:
    numbers = read_numbers(RESULTS / "digits.csv")
    for name in DEMO:
        assert all(" ± " in text for text in numbers[name].values())


def make_project(root: Path, block: str) -> None:
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


def test_numbers_come_from_the_stored_table(tmp_path: Path) -> None:
    make_project(tmp_path, "<!-- results digits: dmg, aggregate -->")
    pages = result_pages(tmp_path)
    readme = pages[tmp_path / "README.md"]
    assert rows(readme) == {
        "": ["plain", "overall", "difference to x"],
        "dmg": ["91.3 ± 0.4", "80.0", ""],
        "aggregate": ["91.3 ± 0.4", "80.0", "+0.0 ± 1.0"],
    }
    assert readme.startswith("before\n")
    assert readme.endswith("\nafter\n")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("<!-- results letters -->", "no docs/results/letters.csv"),
        ("<!-- results digits: dgm -->", "digits.csv has no row dgm"),
    ],
)
def test_a_table_that_is_not_there_is_named(tmp_path: Path, block: str, message: str) -> None:
    make_project(tmp_path, block)
    with pytest.raises(SystemExit, match=message):
        result_pages(tmp_path)
