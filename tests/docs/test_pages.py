"""Pages say what the code says, in one word for one thing, and their links lead somewhere."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.generators.write_pages import DOCS, generated_pages
from tests.docs.markdown_files import FILES, ROOT, broken_links, name_of, prose_of, text_of

import unseen
from unseen.settings import catalog

PACKAGE = ROOT / "src" / "unseen"
ARCHITECTURE = text_of(DOCS / "architecture.md")
INSTEAD = {
    r"pictures?": "image, figure",
    r"held-out": "unseen domain, validation images, test images",
    r"source validation": "validation images",
    r"augmented views?|stored views?|(three|all) views": "augmented copies, measurements",
    r"(right|sure|correct|wrong|many) answers?|answers (here|will be)": "predictions",
    r"strang(e|er|est|eness)": "unusual, outlier",
    r"any of the Hugging Face Hub|beside the paper|what chance explains": "a plain sentence",
}
"""Words that pages and messages do not use, and what they say instead."""
MESSAGES = ("cli", "forecast", "reports", "settings", "sweeps", "results", "audit", "automatic")


def test_generated_pages_are_current() -> None:
    """`make docs` writes them."""
    stale = [name_of(path) for path, text in generated_pages().items() if text_of(path) != text]
    assert stale == [], "run 'make docs'"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_links_lead_somewhere(file: Path) -> None:
    assert broken_links(file) == []


@pytest.mark.parametrize("name", catalog.METHODS)
def test_a_method_page_has_all_its_parts(name: str) -> None:
    page = text_of(DOCS / "methods" / f"{name}.md")
    assert page.startswith(f"# {name}: ")
    needed = ["Formula", "Settings", "Recipes", "When to use it", "Notes"]
    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    assert [heading for heading in headings if heading in needed] == needed
    assert re.search(rf"unseen train \S+/{name}", page)


def test_every_method_public_name_and_word_has_its_place() -> None:
    assert {page.stem for page in (DOCS / "methods").glob("*.md")} == set(catalog.METHODS)
    linked = re.findall(r"\| \[`\w+`\]\(methods/(\w+)\.md\)", text_of(DOCS / "methods.md"))
    assert sorted(linked) == sorted(catalog.METHODS)
    described = re.findall(r"^::: unseen\.(\w+)$", text_of(DOCS / "api.md"), flags=re.MULTILINE)
    assert sorted(described) == sorted(unseen.__all__)
    words = re.findall(r"^\| ([a-z ]+) \|", text_of(DOCS / "glossary.md"), flags=re.MULTILINE)
    assert len(words) == len(set(words)) >= 20


def test_the_architecture_page_describes_and_draws_every_room() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(re.findall(r"^\| `(\w+)/` \|", ARCHITECTURE, flags=re.MULTILINE)) == folders
    names = re.findall(r'class="name"[^>]*>([^<]*)', text_of(DOCS / "images" / "architecture.svg"))
    assert set(re.findall(r"\b(\w+)/", " ".join(names))) == {*folders, "recipes"}


def test_the_architecture_page_names_files_that_exist() -> None:
    """With their folder; in the table of rooms, in the folder of the row."""
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.+) \|$", ARCHITECTURE, flags=re.MULTILINE)
    named = {f"{room}/{file}" for room, files in rows for file in re.findall(r"`([^`]+)`", files)}
    page = ARCHITECTURE
    for _, files in rows:
        page = page.replace(f"| {files} |", "|")
    named |= set(re.findall(r"`((?:\w+/)+|(?:\w+/)*\w+\.py)`", page))
    assert len(named) > 40
    missing = [name for name in named if not any((p / name).exists() for p in (PACKAGE, ROOT))]
    assert missing == []


def test_the_architecture_page_has_the_layers_of_the_import_contract() -> None:
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    (line,) = re.findall(r"^    (cli .*)$", ARCHITECTURE, flags=re.MULTILINE)
    assert line.replace(", ", " | ").split(" → ") == [each for each in layers if each != "__main__"]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_pages_use_one_word_for_one_thing(file: Path) -> None:
    page = re.sub(r"<!-- results.*?<!-- end of results -->", "", prose_of(file), flags=re.DOTALL)
    words = re.sub(r"`[^`\n]*`|\]\([^)]*\)|^## \S+\.npz", "", page, flags=re.MULTILINE)
    assert file.name == "CHANGELOG.md" or found(words) == []


def test_messages_do_so_too() -> None:
    files = [f for room in MESSAGES for f in (PACKAGE / room).rglob("*.py")]
    text = {name_of(file): " | ".join(messages(file)) for file in files}
    assert {name: problems for name, each in text.items() if (problems := found(each))} == {}


def messages(file: Path) -> Iterator[str]:
    """Strings with a space in them that are no docstrings: what a user may read."""
    nodes = list(ast.walk(ast.parse(text_of(file))))
    about = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in about and " " in node.value:
            yield node.value


def found(text: str) -> list[str]:
    plain = " ".join(text.split())
    return [
        f"{match[0]!r} in '{plain[max(0, match.start() - 40) : match.end() + 30]}': {instead}"
        for word, instead in INSTEAD.items()
        for match in re.finditer(rf"\b({word})\b", plain, flags=re.IGNORECASE)
    ]
