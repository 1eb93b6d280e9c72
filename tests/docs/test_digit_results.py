"""The digits' results stand in several places and are the same in all of them."""

import re
from pathlib import Path

import pytest
from docs.generators.digit_tables import DEMO, END, START, digit_pages, read_numbers

from unseen import catalog

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "results" / "digits.csv"


def rows(page: str) -> dict[str, list[str]]:
    """Cells by method, of the table that is generated."""
    table = page.partition(START)[2].partition(END)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")]
    return {row[0]: row[1:] for row in cells if row and row[0] in catalog.METHODS}


def test_readme_and_results_give_the_same_numbers() -> None:
    readme = rows((ROOT / "README.md").read_text(encoding="utf-8"))
    results = rows((ROOT / "docs" / "results.md").read_text(encoding="utf-8"))
    assert tuple(readme) == DEMO
    assert list(results) == list(read_numbers(STORED))
    assert {name: results[name] for name in DEMO} == readme


def test_the_demo_has_intervals() -> None:
    numbers = read_numbers(STORED)
    for name in DEMO:
        assert all(" ± " in text for text in numbers[name].values())


@pytest.mark.parametrize("name", read_numbers(STORED))
def test_recipes_state_the_same_result(name: str) -> None:
    recipe = ROOT / "src" / "unseen" / "recipes" / "digits" / f"{name}.yaml"
    overall = re.escape(read_numbers(STORED)[name]["overall"])
    assert re.search(rf"^# Result: {overall} % ", recipe.read_text(encoding="utf-8"), re.MULTILINE)


def test_numbers_come_from_the_stored_table(tmp_path: Path) -> None:
    stored = tmp_path / "docs" / "results" / "digits.csv"
    stored.parent.mkdir(parents=True)
    header = "dataset,view,rule,method,backbone,quantity,column,mean,half_width,n,planned\n"
    lines = [
        f"digits,out_of_domain,source,{name},small_cnn,{line}\n"
        for name in DEMO
        for line in ("accuracy,plain,91.26,0.44,3,3", "overall,overall,80,,1,3")
    ]
    lines.append(lines[0].split("accuracy")[0] + "difference,difference to x,0.04,1,3,3\n")
    stored.write_text(header + "".join(lines), encoding="utf-8")
    for page in (tmp_path / "README.md", tmp_path / "docs" / "results.md"):
        page.write_text(f"before\n{START}\nold\n{END}\nafter\n", encoding="utf-8")
    recipes = tmp_path / "src" / "unseen" / "recipes" / "digits"
    recipes.mkdir(parents=True)
    for name in DEMO:
        (recipes / f"{name}.yaml").write_text("# Title\n# Result: old\nsteps: 1\n")
    pages = digit_pages(tmp_path)
    assert rows(pages[tmp_path / "README.md"]) == {
        "aggregate": ["91.3 ± 0.4", "80.0", "+0.0 ± 1.0"],
        "multihead": ["91.3 ± 0.4", "80.0", ""],
        "dmg": ["91.3 ± 0.4", "80.0", ""],
    }
    assert pages[tmp_path / "README.md"].startswith("before\n")
    assert pages[tmp_path / "README.md"].endswith("\nafter\n")
    expected = "# Title\n# Result: 80.0 % out of domain (plain 91.3)\nsteps: 1\n"
    assert pages[recipes / "dmg.yaml"] == expected
