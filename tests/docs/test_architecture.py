"""The architecture page describes the folders and files as they are."""

import re
import tomllib

from tests.docs.markdown_files import ROOT, text_of

PACKAGE = ROOT / "src" / "unseen"
PAGE = text_of(ROOT / "docs" / "architecture.md")
DRAWING = text_of(ROOT / "docs" / "images" / "architecture.svg")


def test_every_room_is_described_and_drawn() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE, flags=re.MULTILINE))
    assert described == folders
    drawn = set(
        re.findall(r"\b(\w+)/", " ".join(re.findall(r'class="name"[^>]*>([^<]*)', DRAWING)))
    )
    assert drawn == {*folders, "recipes"}


def test_every_file_and_folder_that_is_named_exists() -> None:
    """With its folder; in the table of rooms, in the folder of its row."""
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.+) \|$", PAGE, flags=re.MULTILINE)
    named = {f"{room}/{file}" for room, files in rows for file in re.findall(r"`([^`]+)`", files)}
    page = PAGE
    for _, files in rows:
        page = page.replace(f"| {files} |", "|")
    named |= set(re.findall(r"`((?:\w+/)+|(?:\w+/)*\w+\.py)`", page))
    assert len(named) > 40
    places = (PACKAGE, ROOT)
    assert [
        name for name in sorted(named) if not any((place / name).exists() for place in places)
    ] == []


def test_the_layers_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    (line,) = re.findall(r"^    (cli .*)$", PAGE, flags=re.MULTILINE)
    assert line.replace(", ", " | ").split(" → ") == [each for each in layers if each != "__main__"]


def test_the_glossary_has_the_words_one_has_to_know() -> None:
    glossary = text_of(ROOT / "docs" / "glossary.md")
    words = re.findall(r"^\| ([a-z ]+) \|", glossary, flags=re.MULTILINE)
    assert len(words) == len(set(words))
    assert len(words) >= 20
