"""Pages say what the code says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from unseen import catalog
from unseen.recipe_files import recipe_names

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def method_pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("method_pages", DOCS / "method_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", catalog.METHODS)
def test_the_table_of_settings_is_current(name: str, method_pages: ModuleType) -> None:
    """`make docs` writes it."""
    page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    table = method_pages.settings_table(catalog.load("method", name).Config)
    assert method_pages.completed(page, table) == page


@pytest.mark.parametrize("name", catalog.METHODS)
def test_a_page_has_all_its_parts(name: str) -> None:
    page = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}: ")
    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    needed = ["Formula", "Settings", "Recipes", "When to use it", "Notes"]
    assert [heading for heading in headings if heading in needed] == needed
    known = set(recipe_names())
    commands = re.findall(r"unseen train (\S+/\S+)", page)
    assert commands
    assert set(commands) <= known


def test_every_page_is_about_a_method() -> None:
    assert {page.stem for page in (DOCS / "methods").glob("*.md")} == set(catalog.METHODS)
