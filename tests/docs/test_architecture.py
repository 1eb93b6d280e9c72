"""The architecture page describes the folders and files as they are."""

import re

from tests.docs.markdown_files import ROOT, text_of

PACKAGE = ROOT / "src" / "unseen"
PAGE = text_of(ROOT / "docs" / "architecture.md")


def test_every_room_is_described() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    described = set(re.findall(r"^\| `(\w+)/` \|", PAGE, flags=re.MULTILINE))
    assert described == folders


def test_every_file_that_is_named_exists() -> None:
    """With its folder, or, in the table of rooms, in the folder of its row."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))
    places = (PACKAGE, PACKAGE / "experiments", PACKAGE / "reports", ROOT)
    missing = {name for name in named if not any((place / name).is_file() for place in places)}
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.+) \|$", PAGE, flags=re.MULTILINE)
    missing |= {
        f"{room}/{name}"
        for room, files in rows
        for name in re.findall(r"`([\w/]+\.py)`", files)
        if not (PACKAGE / room / name).is_file()
    }
    assert missing == set()


def test_the_glossary_has_the_words_one_has_to_know() -> None:
    glossary = PAGE.partition("## Glossary")[2]
    words = re.findall(r"^\| ([a-z ]+) \|", glossary, flags=re.MULTILINE)
    assert len(words) == len(set(words))
    assert len(words) >= 20
