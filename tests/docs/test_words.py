"""One word for one thing: words that pages and messages do not use, and what they say instead."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.markdown_files import FILES, ROOT, text_of

INSTEAD = {
    r"pictures?": "image, figure",
    r"held-out": "unseen domain, validation images, test images",
    r"source validation": "validation images",
    r"augmented views?|stored views?|(three|all) views": "augmented copies, measurements",
    r"(right|sure|correct|wrong|many) answers?|answers (here|will be)": "predictions",
    r"strang(e|er|est|eness)": "unusual, outlier",
    r"any of the Hugging Face Hub|beside the paper|what chance explains": "a plain sentence",
}
MESSAGES = ("cli", "forecast", "reports", "settings", "sweeps", "results", "audit", "automatic")


def prose(page: str) -> str:
    """A page without code, results and addresses of links."""
    page = re.sub(r"```.*?```|<!-- results.*?<!-- end of results -->", "", page, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|^## \S+\.npz", "", page, flags=re.MULTILINE)


def messages(file: Path) -> Iterator[str]:
    """Strings with a space in them that are no docstrings: what a user may read."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    about = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
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


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_pages_use_one_word_for_one_thing(file: Path) -> None:
    if file.name != "CHANGELOG.md":
        assert found(prose(text_of(file))) == []


def test_messages_do_so_too() -> None:
    files = [f for room in MESSAGES for f in (ROOT / "src/unseen" / room).rglob("*.py")]
    wrong = {
        str(file.relative_to(ROOT)): problems
        for file in files
        if (problems := [each for text in messages(file) for each in found(text)])
    }
    assert wrong == {}
