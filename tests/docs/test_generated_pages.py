"""Pages say what the code says."""

import re
from pathlib import Path

import pytest
from docs.generators.write_pages import DOCS, ROOT, generated_pages

import unseen
from unseen.settings import catalog


def test_generated_pages_are_current() -> None:
    """`make docs` writes them."""
    stale = [
        path.relative_to(ROOT).as_posix()
        for path, text in generated_pages().items()
        if path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run 'make docs'"


@pytest.mark.parametrize("name", catalog.METHODS)
def test_a_method_page_has_all_its_parts(name: str) -> None:
    page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}: ")
    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    needed = ["Formula", "Settings", "Recipes", "When to use it", "Notes"]
    assert [heading for heading in headings if heading in needed] == needed
    assert re.search(rf"unseen train \S+/{name}", page)


def test_every_method_has_a_page_and_a_line_in_the_overview() -> None:
    assert {page.stem for page in (DOCS / "methods").glob("*.md")} == set(catalog.METHODS)
    overview = (DOCS / "methods.md").read_text(encoding="utf-8")
    linked = re.findall(r"\| \[`\w+`\]\(methods/(\w+)\.md\)", overview)
    assert sorted(linked) == sorted(catalog.METHODS)


def test_the_reference_has_every_public_name() -> None:
    page = Path(DOCS / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: unseen\.(\w+)$", page, flags=re.MULTILINE)) == sorted(
        unseen.__all__
    )
